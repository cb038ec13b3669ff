#include "infer/import_gguf.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "infer/stored_weights.h"
#include "nn/model.h"

namespace octet {
namespace {

constexpr int64_t kImportPiece = 512 << 10;  // elements

template <typename... Args>
[[noreturn]] void bad_gguf(const std::string& path, fmt::format_string<Args...> format,
                           Args&&... args) {
  throw Error(ErrorCode::bad_data, "[gguf] {}: {}", path,
              fmt::format(format, std::forward<Args>(args)...));
}

// The decimal that was meant by a number of 32 bits: 1e-5, not 9.99999974e-06.
double decimal(float x) {
  return std::strtod(fmt::format("{}", x).c_str(), nullptr);
}

// GGUF's name of a parameter; "" where it has none.
std::string gguf_name(const std::string& parameter) {
  static const std::map<std::string_view, std::string_view> kModules = {
      {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},   {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  constexpr std::string_view kLayers = "model.layers.";
  if (parameter == "model.embed_tokens.weight") return "token_embd.weight";
  if (parameter == "model.norm.weight") return "output_norm.weight";
  if (parameter == "lm_head.weight") return "output.weight";
  if (!parameter.starts_with(kLayers)) return "";
  const size_t dot = parameter.find('.', kLayers.size()), end = parameter.rfind('.');
  if (dot == parameter.npos || end <= dot) return "";
  const auto module = kModules.find(std::string_view(parameter).substr(dot + 1, end - dot - 1));
  if (module == kModules.end()) return "";
  return fmt::format("blk.{}.{}{}", parameter.substr(kLayers.size(), dot - kLayers.size()),
                     module->second, parameter.substr(end));
}

// Heads of queries and keys, whose rows GGUF has in pairs that rotate together; 0: of others.
int64_t paired_heads(const ModelSpec& spec, const std::string& parameter) {
  if (parameter.find(".q_proj.") != parameter.npos) return spec.heads;
  return parameter.find(".k_proj.") != parameter.npos ? spec.kv_heads : 0;
}

// Elements of a parameter in Hugging Face's order: row h * d + j * d/2 + i of a head of width d is
// row h * d + 2 i + j of the file.
void read_parameter(const GgufReader& file, const GgufTensor& tensor, int64_t head_dim,
                    int64_t first, std::span<float> out) {
  if (head_dim == 0) return file.read(tensor, first, out);
  const int64_t cols = tensor.shape.size() == 1 ? 1 : tensor.shape.back(), half = head_dim / 2;
  const auto n = std::ssize(out);
  for (int64_t at = 0; at < n;) {
    const int64_t row = (first + at) / cols, col = (first + at) % cols;
    const int64_t in_head = row % head_dim;
    const int64_t from = row - in_head + 2 * (in_head % half) + in_head / half;
    const int64_t length = std::min(n - at, cols - col);
    file.read(tensor, from * cols + col,
              out.subspan(static_cast<size_t>(at), static_cast<size_t>(length)));
    at += length;
  }
}

struct Import {
  GgufReader file;
  ModelSpec spec;
  Dtype dtype;
};

TensorSource tensor_source(const std::shared_ptr<const Import>& from, const ParameterSpec& p) {
  const std::string name = gguf_name(p.name);
  const GgufTensor* tensor = from->file.find(name);
  if (tensor == nullptr) bad_gguf(from->file.path(), "expected a tensor '{}', got none", name);
  if (tensor->shape != p.shape) {
    bad_gguf(from->file.path(), "'{}' must be {}, got {}", name, to_string(p.shape),
             to_string(tensor->shape));
  }
  const int64_t head_dim = paired_heads(from->spec, p.name) > 0 ? from->spec.head_dim : 0;
  const int64_t n_elems = octet::n_elems(p.shape);
  return {tensor_decl(p.name, from->dtype, p.shape),
          [from, tensor, head_dim, n_elems](const ByteSink& sink) {
            std::vector<float> values;
            for (int64_t first = 0; first < n_elems; first += kImportPiece) {
              values.resize(static_cast<size_t>(std::min(kImportPiece, n_elems - first)));
              read_parameter(from->file, *tensor, head_dim, first, values);
              sink(encode_weights(values, from->dtype));
            }
          }};
}

void expect_absent_or(const GgufReader& file, const std::string& key, uint32_t neutral) {
  const GgufHeader& header = file.header();
  if (header.has(key) && header.number(key) != neutral)
    bad_gguf(file.path(), "expected '{}' {}, got {}", key, neutral, header.number(key));
}

// Tensors that no parameter is of would be left out of what the model computes.
void expect_known_tensors(const GgufReader& file, const std::vector<ParameterSpec>& parameters) {
  for (const GgufTensor& tensor : file.header().tensors()) {
    const bool is_known = std::ranges::any_of(
        parameters, [&](const ParameterSpec& p) { return gguf_name(p.name) == tensor.name; });
    if (!is_known) bad_gguf(file.path(), "the model has no parameter for '{}'", tensor.name);
  }
}

void write_file(Files& files, const std::string& folder, const char* name,
                const std::string& text) {
  write_atomically(files, join_path(folder, name), text);
}

}  // namespace

bool is_gguf_name(const std::string& path) {
  return path.ends_with(".gguf");
}

ModelSpec gguf_spec(const GgufReader& file) {
  const GgufHeader& header = file.header();
  const std::string kind = header.string("general.architecture");
  if (kind != "llama")
    bad_gguf(file.path(), "expected general.architecture 'llama', got '{}'", kind);
  const auto number = [&](const std::string& key) -> int64_t {
    return header.number("llama." + key);
  };
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    bad_gguf(file.path(), "expected a matrix 'token_embd.weight', got none");
  ModelSpec spec{.kind = ModelKind::llama,
                 .hidden = number("embedding_length"),
                 .layers = number("block_count"),
                 .heads = number("attention.head_count"),
                 .ffn = number("feed_forward_length"),
                 .vocab = embedding->shape[0],
                 .max_positions = number("context_length")};
  if (header.has("llama.attention.head_count_kv"))
    spec.kv_heads = number("attention.head_count_kv");
  if (header.has("llama.attention.key_length")) spec.head_dim = number("attention.key_length");
  spec.norm_eps = decimal(header.real("llama.attention.layer_norm_rms_epsilon"));
  if (header.has("llama.rope.freq_base"))
    spec.rope_theta = decimal(header.real("llama.rope.freq_base"));
  spec.tied = file.find("output.weight") == nullptr;
  spec.attention_bias = file.find("blk.0.attn_q.bias") != nullptr;
  spec.mlp_bias = file.find("blk.0.ffn_up.bias") != nullptr;
  spec = resolved(spec);
  expect_absent_or(file, "llama.expert_count", 0);
  expect_absent_or(file, "llama.attention.sliding_window", 0);
  expect_absent_or(file, "llama.rope.dimension_count", static_cast<uint32_t>(spec.head_dim));
  const std::string scaling = "llama.rope.scaling.type";
  if (header.has(scaling) && header.string(scaling) != "none")
    bad_gguf(file.path(), "expected '{}' none, got '{}'", scaling, header.string(scaling));
  return spec;
}

ExportResult import_gguf(Files& files, const std::string& path, const std::string& folder,
                         const ExportOptions& options) {
  if (is_fp8(options.dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --dtype: expected f32 or bf16 of a GGUF file, got {}",
                enum_name(options.dtype));
  }
  const GgufReader file = GgufReader::open(files, path);
  const ModelSpec spec = gguf_spec(file);
  const auto from = std::make_shared<const Import>(
      Import{file, spec, options.dtype == ExportDtype::bf16 ? Dtype::bf16 : Dtype::f32});
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  expect_known_tensors(file, parameters);
  ExportContent content;
  for (const ParameterSpec& p : parameters) content.tensors.push_back(tensor_source(from, p));
  const std::string tokenizer = gguf_tokenizer_json(file.header(), path);
  take_export_folder(files, folder);
  write_file(files, folder, "tokenizer.json", tokenizer);
  write_file(files, folder, "tokenizer_config.json", gguf_tokenizer_config(file.header()));
  write_file(files, folder, "generation_config.json", gguf_generation_config(file.header()));
  ModelSource source;
  source.spec = spec;
  source.folder = folder;
  return write_model_folder(files, source, folder, content, options);
}

}  // namespace octet
