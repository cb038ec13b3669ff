#include "infer/import_gguf.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "infer/gguf_architecture.h"
#include "infer/gguf_spec.h"
#include "infer/stored_weights.h"
#include "io/gguf_reader.h"
#include "nn/model.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

constexpr int64_t kImportPiece = 512 << 10;  // elements

// Elements of a parameter in a model folder's order of rows.
void read_parameter(const GgufReader& file, const GgufTensor& tensor, int64_t head_dim,
                    int64_t first, std::span<float> out) {
  if (head_dim == 0) return file.read(tensor, first, out);
  const int64_t cols = tensor.shape.size() == 1 ? 1 : tensor.shape.back();
  const auto n = std::ssize(out);
  for (int64_t at = 0; at < n;) {
    const int64_t row = (first + at) / cols, col = (first + at) % cols;
    const int64_t length = std::min(n - at, cols - col);
    file.read(tensor, row_in_file(row, head_dim) * cols + col,
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
  const int64_t head_dim = paired_width(*gguf_architecture_of(from->spec.kind), from->spec, p.name);
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

// Tensors that no parameter is of would be left out of what the model computes.
void expect_known_tensors(const GgufReader& file, const std::vector<ParameterSpec>& parameters) {
  for (const GgufTensor& tensor : file.header().tensors()) {
    const bool is_known = tensor.name == kGgufFrequencies ||
                          std::ranges::any_of(parameters, [&](const ParameterSpec& p) {
                            return gguf_name(p.name) == tensor.name;
                          });
    if (!is_known) file.header().bad("the model has no parameter for '{}'", tensor.name);
  }
}

// The files of the vocabulary, which its readers have read.
std::map<std::string, std::string> vocabulary_files(const Files& files, const GgufReader& file,
                                                    int64_t n_positions) {
  const GgufHeader& header = file.header();
  Json config = gguf_tokenizer_config(header);
  const Json tokenizer = gguf_tokenizer_json(header);
  read_tokenizer_json({files, file.path(), ""}, tokenizer, &config);
  config["model_max_length"] = n_positions;
  return {{"tokenizer.json", tokenizer.dump(1) + "\n"},
          {"tokenizer_config.json", config.dump(1) + "\n"},
          {"generation_config.json", gguf_generation_config(header).dump(1) + "\n"}};
}

// Of rope_freqs.weight; empty where there is none.
std::vector<float> frequency_divisors(const GgufReader& file) {
  constexpr int64_t kMost = 1 << 16;
  const GgufTensor* tensor = file.find(kGgufFrequencies);
  if (tensor == nullptr) return {};
  if (tensor->shape.size() != 1 || tensor->shape[0] > kMost) {
    file.header().bad("'{}': expected at most {} numbers, got {}", kGgufFrequencies, kMost,
                      to_string(tensor->shape));
  }
  std::vector<float> divisors(static_cast<size_t>(tensor->shape[0]));
  file.read(*tensor, 0, divisors);
  return divisors;
}

}  // namespace

bool is_gguf_name(const std::string& path) {
  return path.ends_with(".gguf");
}

ExportResult import_gguf(Files& files, const std::string& path, const std::string& folder,
                         const ExportOptions& options) {
  if (is_eight_bit(options.dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --dtype: expected f32 or bf16 of a GGUF file, got {}",
                enum_name(options.dtype));
  }
  const GgufReader file = GgufReader::open(files, path);
  const ModelSpec spec = gguf_spec(file.header(), frequency_divisors(file));
  check_gguf_keys(file.header(), options.log);
  check_exportable(spec);
  const auto dtype = options.dtype == ExportDtype::bf16 ? Dtype::bf16 : Dtype::f32;
  const auto from = std::make_shared<const Import>(Import{file, spec, dtype, options.nonfinite});
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  expect_known_tensors(file, parameters);
  ExportContent content{.tensors = {}, .texts = vocabulary_files(files, file, spec.max_positions)};
  for (const ParameterSpec& p : parameters) content.tensors.push_back(tensor_source(from, p));
  const bool has_words = file.header().string("tokenizer.ggml.model") == "gpt2";
  if (has_words && !file.header().has("tokenizer.ggml.pre")) {
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
