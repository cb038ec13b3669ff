#include "infer/import_gguf.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/gguf.h"
#include "base/hash.h"
#include "infer/export_tensors.h"
#include "infer/gguf_architecture.h"
#include "infer/gguf_spec.h"
#include "infer/weights.h"
#include "io/gguf_reader.h"
#include "io/gguf_weights.h"
#include "io/model_files.h"
#include "nn/model.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

struct Import {
  GgufReader file;
  ModelSpec spec;
  std::map<std::string, GgufPlace> places;  // of each parameter
};

std::map<std::string, GgufPlace> places_of(const GgufReader& file, const ModelSpec& spec) {
  std::map<std::string, GgufPlace> places;
  for (const ParameterSpec& p : model_parameters(spec)) {
    const std::string name = gguf_name(p.name);
    const GgufTensor* tensor = file.find(name);
    if (tensor == nullptr) file.header().bad("expected a tensor '{}', got none", name);
    if (tensor->shape != p.shape) {
      file.header().bad("'{}' must be {}, got {}", name, to_string(p.shape),
                        to_string(tensor->shape));
    }
    places[p.name] = {name, paired_width(*gguf_architecture_of(spec.kind), spec, p.name)};
  }
  return places;
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

// Values of rope_freqs.weight; empty where there is none.
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

namespace {

Import opened_gguf(const Files& files, const std::string& path, const ExportOptions& options) {
  const GgufReader file = GgufReader::open(files, path);
  const ModelSpec spec = gguf_spec(file.header(), frequency_divisors(file));
  check_gguf_keys(file.header(), options.log);
  check_exportable(spec);
  expect_known_tensors(file, model_parameters(spec));
  const bool has_words = file.header().string("tokenizer.ggml.model") == "gpt2";
  if (has_words && !file.header().has("tokenizer.ggml.pre")) {
    options.log.warning("[gguf] {}: no 'tokenizer.ggml.pre' says what a word is: read as 'default'",
                        path);
  }
  return {file, spec, places_of(file, spec)};
}

// The file's weights, read as a folder's are.
ExportWeights weights_of(const Import& from, NonfiniteWeights nonfinite) {
  ModelFiles tensors(GgufWeights(from.file, from.places, from.file.path()));
  return {from.spec, WeightReader(std::move(tensors), from.spec, nonfinite)};
}

// The folder's content; what its readers refuse is refused here. `weights` must outlive it.
ExportContent content_of(const Files& files, const Import& from, const ExportWeights& weights,
                         ExportDtype dtype) {
  return {.tensors = export_tensors(weights, dtype),
          .texts = vocabulary_files(files, from.file, from.spec.max_positions)};
}

ModelSource source_in(const std::string& folder, const ModelSpec& spec) {
  ModelSource source;
  source.spec = spec;
  source.folder = folder;
  return source;
}

}  // namespace

ExportResult import_gguf(Files& files, const std::string& path, const std::string& folder,
                         const ExportOptions& options) {
  if (is_eight_bit(options.dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --dtype: expected f32 or bf16 of a GGUF file, got {}",
                enum_name(options.dtype));
  }
  const Import opened = opened_gguf(files, path, options);
  const ExportWeights weights = weights_of(opened, options.nonfinite);
  const ExportContent content = content_of(files, opened, weights, options.dtype);
  take_export_folder(files, folder);
  return write_model_folder(files, source_in(folder, opened.spec), folder, content, options);
}

std::string gguf_identity(const Files& files, const std::string& path) {
  const GgufReader file = GgufReader::open(files, path);
  std::vector<std::byte> bytes(file.header().n_bytes());
  files.open(path)->read_at(0, bytes);
  Xxh64 hash;
  hash.update(bytes);
  hash.update(path);
  return fmt::format("{:016x}", hash.digest());
}

void link_gguf(Files& files, const std::string& path, const std::string& folder, const Log& log) {
  const Import opened = opened_gguf(files, path, {.log = log});
  const std::string note = join_path(folder, kGgufWeights);
  const std::string text = gguf_weights_text(path, opened.places);
  const bool is_there = files.exists(join_path(folder, "config.json")) && files.exists(note) &&
                        files.read_text(note) == text;
  if (is_there) return;
  const ExportWeights weights = weights_of(opened, NonfiniteWeights::refused);
  const ExportContent content = content_of(files, opened, weights, ExportDtype::as_stored);
  files.create_directories(folder);
  write_atomically(files, note, text);
  write_model_folder(files, source_in(folder, opened.spec), folder, content,
                     {.weights = WeightFiles::none, .log = log});
}

}  // namespace octet
