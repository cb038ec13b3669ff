#include "infer/import_gguf.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "infer/stored_weights.h"
#include "nn/model.h"
#include "nn/shape.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

constexpr int64_t kImportPiece = 512 << 10;  // elements

// Keys that gguf_spec() reads.
constexpr std::string_view kReadKeys[] = {"llama.vocab_size",
                                          "llama.context_length",
                                          "llama.embedding_length",
                                          "llama.block_count",
                                          "llama.feed_forward_length",
                                          "llama.attention.head_count",
                                          "llama.attention.head_count_kv",
                                          "llama.attention.key_length",
                                          "llama.attention.value_length",
                                          "llama.attention.layer_norm_rms_epsilon",
                                          "llama.rope.dimension_count",
                                          "llama.rope.freq_base",
                                          "llama.rope.scaling.type",
                                          "llama.rope.scaling.factor",
                                          "llama.rope.scale_linear"};
// Keys without effect: on yarn alone, whose length it is, or on nothing that computes.
constexpr std::string_view kNeutralKeys[] = {"llama.rope.scaling.original_context_length",
                                             "llama.rope.scaling.finetuned"};
// Keys with a value that says what a Llama is without them.
struct NeutralValue {
  std::string_view key;
  GgufType type;
  std::string_view value;
};
constexpr NeutralValue kNeutralValues[] = {
    {"general.type", GgufType::string, "model"},
    {"llama.expert_count", GgufType::u32, "0"},
    {"llama.expert_used_count", GgufType::u32, "0"},
    {"llama.attention.sliding_window", GgufType::u32, "0"},
    {"llama.attention.causal", GgufType::boolean, "true"},
    {"llama.attention.scale", GgufType::f32, "0"},
    {"llama.rope.scaling.attn_factor", GgufType::f32, "1"},
    {"llama.rope.scaling.yarn_log_multiplier", GgufType::f32, "0"},
    {"llama.use_parallel_residual", GgufType::boolean, "false"},
    {"llama.tensor_data_layout", GgufType::string, "Meta AI original pth"}};
// Whose keys say what a file is, and nothing that computes.
constexpr std::string_view kNeutralPrefixes[] = {"general.", "quantize.", "split."};
constexpr std::string_view kModelPrefix = "llama.", kVocabularyPrefix = "tokenizer.";

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
  NonfiniteWeights nonfinite;
};

TensorSource tensor_source(const std::shared_ptr<const Import>& from, const ParameterSpec& p) {
  const std::string name = gguf_name(p.name);
  const GgufTensor* tensor = from->file.find(name);
  const GgufHeader& header = from->file.header();
  if (tensor == nullptr) header.bad("expected a tensor '{}', got none", name);
  if (tensor->shape != p.shape) {
    header.bad("'{}' must be {}, got {}", name, to_string(p.shape), to_string(tensor->shape));
  }
  const int64_t head_dim = paired_heads(from->spec, p.name) > 0 ? from->spec.head_dim : 0;
  const int64_t n_elems = octet::n_elems(p.shape);
  const TensorDecl decl = tensor_decl(p.name, from->dtype, p.shape);
  return {decl, [from, tensor, head_dim, n_elems, decl](const ByteSink& sink) {
            std::vector<float> values;
            for (int64_t first = 0; first < n_elems; first += kImportPiece) {
              values.resize(static_cast<size_t>(std::min(kImportPiece, n_elems - first)));
              read_parameter(from->file, *tensor, head_dim, first, values);
              if (from->nonfinite == NonfiniteWeights::refused)
                check_finite_values(from->file.path(), decl, first, values, from->dtype);
              sink(encode_weights(values, from->dtype));
            }
          }};
}

void check_keys(const GgufHeader& header, const Log& log) {
  const std::string parts =
      header.has("split.count") ? header.shown("split.count", GgufType::u16) : "0";
  if (parts != "0" && parts != "1") header.bad("expected a whole file, got one of {} parts", parts);
  const auto is_one_of = [](const auto& list, std::string_view key) {
    return std::ranges::find(list, key) != std::end(list);
  };
  for (const std::string& key : header.keys()) {
    const auto* neutral = std::ranges::find(kNeutralValues, key, &NeutralValue::key);
    if (neutral != std::end(kNeutralValues)) {
      const std::string got = header.shown(key, neutral->type);
      if (got != neutral->value) header.bad("expected '{}' {}, got {}", key, neutral->value, got);
    } else if (key.starts_with(kModelPrefix)) {
      if (is_one_of(kReadKeys, key) || is_one_of(kNeutralKeys, key)) continue;
      header.bad("'{}' is not known: it may change what the model computes", key);
    } else if (!key.starts_with(kVocabularyPrefix) &&
               std::ranges::none_of(kNeutralPrefixes,
                                    [&](auto prefix) { return key.starts_with(prefix); })) {
      log.warning("[gguf] {}: '{}' is not known, and ignored", header.path(), key);
    }
  }
}

// Linear where the type is absent, and without effect where the factor is.
void read_rope_scaling(const GgufHeader& header, ModelSpec& spec) {
  const std::string key = "llama.rope.scaling.type", usual = "llama.rope.scaling.factor";
  const std::string factor_key = header.has(usual) ? usual : "llama.rope.scale_linear";
  const std::string type = header.has(key) ? header.string(key) : "linear";
  if (type != "linear" && type != "none")
    header.bad("expected '{}' none or linear, got '{}'", key, type);
  const double factor = header.has(factor_key) ? decimal(header.real(factor_key)) : 0;
  if (type == "none" || factor == 0 || factor == 1) return;
  if (!(factor > 1)) header.bad("expected '{}' of 1 or more, got {}", factor_key, factor);
  spec.rope_scaling = RopeScaling::linear;
  spec.rope_factor = factor;
}

// A field of a ModelSpec by the key that it is read from, for messages.
std::string_view key_of(std::string_view field) {
  constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
      {"hidden", "llama.embedding_length"},
      {"layers", "llama.block_count"},
      {"heads", "llama.attention.head_count"},
      {"kv_heads", "llama.attention.head_count_kv"},
      {"head_dim", "llama.attention.key_length"},
      {"ffn", "llama.feed_forward_length"},
      {"max_positions", "llama.context_length"},
      {"norm_eps", "llama.attention.layer_norm_rms_epsilon"},
      {"rope_theta", "llama.rope.freq_base"},
      {"rope_scaling.factor", "llama.rope.scaling.factor"}};
  const auto* at =
      std::ranges::find(kKeys, field, &std::pair<std::string_view, std::string_view>::first);
  return at == std::end(kKeys) ? field : at->second;
}

// Tensors that no parameter is of would be left out of what the model computes.
void expect_known_tensors(const GgufReader& file, const std::vector<ParameterSpec>& parameters) {
  for (const GgufTensor& tensor : file.header().tensors()) {
    const bool is_known = std::ranges::any_of(
        parameters, [&](const ParameterSpec& p) { return gguf_name(p.name) == tensor.name; });
    if (!is_known) file.header().bad("the model has no parameter for '{}'", tensor.name);
  }
}

// The files of the vocabulary, which its readers have read.
std::map<std::string, std::string> vocabulary_files(const Files& files, const GgufReader& file) {
  const GgufHeader& header = file.header();
  Json config = gguf_tokenizer_config(header);
  const Json tokenizer = gguf_tokenizer_json(header);
  read_tokenizer_json({files, file.path(), ""}, tokenizer, &config);
  config["model_max_length"] = header.number("llama.context_length");
  return {{"tokenizer.json", tokenizer.dump(1) + "\n"},
          {"tokenizer_config.json", config.dump(1) + "\n"},
          {"generation_config.json", gguf_generation_config(header).dump(1) + "\n"}};
}

}  // namespace

std::vector<std::string_view> neutral_gguf_keys() {
  std::vector<std::string_view> keys = neutral_vocabulary_keys();
  keys.insert(keys.end(), std::begin(kNeutralKeys), std::end(kNeutralKeys));
  keys.insert(keys.end(), std::begin(kNeutralPrefixes), std::end(kNeutralPrefixes));
  return keys;
}

bool is_gguf_name(const std::string& path) {
  return path.ends_with(".gguf");
}

ModelSpec gguf_spec(const GgufReader& file) {
  const GgufHeader& header = file.header();
  const std::string kind = header.string("general.architecture");
  if (kind != "llama") header.bad("expected general.architecture 'llama', got '{}'", kind);
  const auto number = [&](const std::string& key) -> int64_t {
    return header.number("llama." + key);
  };
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    header.bad("expected a matrix 'token_embd.weight', got none");
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
  read_rope_scaling(header, spec);
  spec.tied = file.find("output.weight") == nullptr;
  spec.attention_bias = file.find("blk.0.attn_q.bias") != nullptr;
  spec.mlp_bias = file.find("blk.0.ffn_up.bias") != nullptr;
  if (const auto fault = fault_of(spec)) {
    header.bad("expected '{}' {}, got {}", key_of(fault->field),
               fault->expected_of(key_of(fault->other)), fault->got);
  }
  spec = filled(spec);
  const auto expect = [&](const std::string& key, int64_t value) {
    if (header.has(key) && header.number(key) != value)
      header.bad("expected '{}' {}, got {}", key, value, header.number(key));
  };
  expect("llama.attention.value_length", spec.head_dim);
  expect("llama.rope.dimension_count", spec.head_dim);
  expect("llama.vocab_size", spec.vocab);
  const auto n_tokens = std::ssize(header.strings("tokenizer.ggml.tokens"));
  if (n_tokens != spec.vocab)
    header.bad("expected a token for each of {} rows, got {} tokens", spec.vocab, n_tokens);
  return spec;
}

ExportResult import_gguf(Files& files, const std::string& path, const std::string& folder,
                         const ExportOptions& options) {
  if (is_eight_bit(options.dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --dtype: expected f32 or bf16 of a GGUF file, got {}",
                enum_name(options.dtype));
  }
  const GgufReader file = GgufReader::open(files, path);
  const ModelSpec spec = gguf_spec(file);
  check_keys(file.header(), options.log);
  check_exportable(spec);
  const auto dtype = options.dtype == ExportDtype::bf16 ? Dtype::bf16 : Dtype::f32;
  const auto from = std::make_shared<const Import>(Import{file, spec, dtype, options.nonfinite});
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  expect_known_tensors(file, parameters);
  ExportContent content{.tensors = {}, .texts = vocabulary_files(files, file)};
  for (const ParameterSpec& p : parameters) content.tensors.push_back(tensor_source(from, p));
  if (!file.header().has("tokenizer.ggml.pre")) {
    options.log.warning("[gguf] {}: no 'tokenizer.ggml.pre' says what a word is: read as 'default'",
                        path);
  }
  take_export_folder(files, folder);
  ModelSource source;
  source.spec = spec;
  source.folder = folder;
  return write_model_folder(files, source, folder, content, options);
}

}  // namespace octet
