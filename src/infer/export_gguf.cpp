#include "infer/export_gguf.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/remove_tree.h"
#include "infer/export_tensors.h"
#include "infer/gguf_architecture.h"
#include "infer/gguf_spec.h"
#include "infer/tensor_streams.h"
#include "io/gguf_rows.h"
#include "io/gguf_writer.h"
#include "nn/fields.h"
#include "text/chat_template.h"
#include "text/gguf_vocabulary_writer.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

[[noreturn]] void refuse_model(std::string_view expected, std::string_view got) {
  throw Error(ErrorCode::invalid_argument, "[convert] a GGUF file: expected {}, got {}", expected,
              got);
}

// The files that stand beside an export's weights, in a folder of their own that is gone behind.
class Companions {
 public:
  Companions(Files& files, const ModelSource& source, const std::string& folder, const Log& log)
      : files_(files), tree_(files, folder) {
    copy_companions(files, source, folder, log);
  }

  std::string path(std::string_view name) const { return join_path(tree_.path(), name); }
  Json json(const std::string& name) const {
    if (!files_.exists(path(name))) return Json::object();
    Json json = parse_json(files_.read_text(path(name)), path(name));
    const JsonObject checked(json, path(name));  // throws for what is no object
    return json;
  }
  // By name, the usual one "default".
  std::map<std::string, std::string> templates() const {
    std::map<std::string, std::string> all;
    const Json config = json("tokenizer_config.json").value("chat_template", Json());
    for (const Json& one : config.is_array() ? config : Json::array()) {
      const JsonObject named(one, path("tokenizer_config.json"));
      all[named.string("name")] = named.string("template");
    }
    const std::string more = path(kNamedTemplates);
    if (files_.exists(more)) {
      for (const DirectoryEntry& entry : files_.list(more))
        all[entry.name.substr(0, entry.name.rfind('.'))] =
            files_.read_text(join_path(more, entry.name));
    }
    if (has_chat_template(files_, tree_.path()))
      all["default"] = find_chat_template(files_, tree_.path(), /*has_tools=*/false).text;
    return all;
  }

 private:
  Files& files_;
  const TemporaryTree tree_;
};

void add_scaling(const ModelSpec& spec, const std::string& prefix, GgufKeys& keys) {
  const bool has_divisors = gguf_architecture_of(spec.kind)->has_divisors;
  if (spec.rope_scaling == RopeScaling::none) return;
  if (spec.rope_scaling == RopeScaling::llama3 && has_divisors) return;
  if (spec.rope_scaling != RopeScaling::linear) {
    refuse_model(has_divisors ? "rotary positions that are not scaled, or linearly, or as Llama 3's"
                              : "rotary positions that are not scaled, or linearly",
                 enum_name(spec.rope_scaling));
  }
  keys.add(prefix + "rope.scaling.type", "linear");
  keys.add(prefix + "rope.scaling.factor", static_cast<float>(spec.rope_factor));
}

GgufKeys model_keys(const ModelSpec& spec, const std::string& name, GgufDtype dtype) {
  // Types of the files that llama.cpp writes.
  static const std::map<GgufDtype, uint32_t> kFileTypes = {
      {GgufDtype::f32, 0}, {GgufDtype::f16, 1}, {GgufDtype::q8_0, 7}, {GgufDtype::bf16, 32}};
  const std::string architecture(gguf_architecture_of(spec.kind)->name);
  const std::string prefix = architecture + ".";
  GgufKeys keys;
  const auto add = [&](std::string_view key, int64_t value) {
    keys.add(prefix + std::string(key), static_cast<uint32_t>(value));
  };
  keys.add("general.architecture", architecture);
  keys.add("general.type", "model");
  keys.add("general.name", name);
  if (const auto type = kFileTypes.find(dtype); type != kFileTypes.end())
    keys.add("general.file_type", type->second);
  keys.add("general.quantization_version", uint32_t{2});
  add("block_count", spec.layers);
  add("context_length", spec.max_positions);
  add("embedding_length", spec.hidden);
  add("feed_forward_length", spec.ffn);
  add("attention.head_count", spec.heads);
  add("attention.head_count_kv", spec.kv_heads);
  add("attention.key_length", spec.head_dim);
  add("attention.value_length", spec.head_dim);
  keys.add(prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(spec.norm_eps));
  add("rope.dimension_count", spec.head_dim);
  keys.add(prefix + "rope.freq_base", static_cast<float>(spec.rope_theta));
  add("vocab_size", spec.vocab);
  add_scaling(spec, prefix, keys);
  return keys;
}

std::vector<float> divisors_of(const ModelSpec& spec) {
  if (spec.rope_scaling == RopeScaling::llama3) return llama3_divisors(spec);
  return std::vector<float>(static_cast<size_t>(spec.head_dim / 2), 1.0f);
}

// Checks that these keys and tensors say all of the model: what they are read as is the model.
void check_says_all(const ModelSpec& spec, const std::string& header) {
  const GgufHeader written(header, "convert", "the GGUF file", GgufHeader::Tensors::read);
  const bool has_divisors = spec.rope_scaling == RopeScaling::llama3;
  ModelSpec read =
      resolved(gguf_spec(written, has_divisors ? llama3_divisors(spec) : std::vector<float>()));
  ModelSpec full = spec;
  full.rope_seq = read.rope_seq;
  if (full.rope_scaling == RopeScaling::linear && full.rope_factor == 1)
    full.rope_scaling = RopeScaling::none;  // positions as they are
  // One function by other fields: of narrow heads few pairs say how they are scaled.
  if (has_divisors && are_equal_divisors(divisors_of(read), llama3_divisors(full))) {
    read.rope_scaling = full.rope_scaling;
    read.rope_low_freq_factor = full.rope_low_freq_factor;
    read.rope_high_freq_factor = full.rope_high_freq_factor;
    read.rope_original_max_position = full.rope_original_max_position;
    read.rope_factor = full.rope_factor;
  }
  if (full.sliding_window == 0) read.window_from = full.window_from;  // of no layer
  for (double ModelSpec::*of : {&ModelSpec::norm_eps, &ModelSpec::rope_theta,
                                &ModelSpec::rope_factor}) {  // are f32 in the file
    if (static_cast<float>(read.*of) == static_cast<float>(full.*of)) read.*of = full.*of;
  }
  for (const ModelField& field : model_fields()) {
    // A mistral without a window is a llama.
    if (field.name() == "kind" || !field.is_of(full)) continue;
    const std::string ours = field_text(field, full), theirs = field_text(field, read);
    if (ours == theirs) continue;
    refuse_model(fmt::format("{} {}, which {} has no other key for", field.name(), theirs,
                             model_def(spec.kind).name),
                 ours);
  }
}

class Weights {
 public:
  Weights(const ExportWeights& weights, const ModelSpec& spec, GgufDtype dtype)
      : weights_(weights),
        spec_(spec),
        architecture_(*gguf_architecture_of(spec.kind)),
        dtype_(dtype) {}

  GgufTensorSource source(const ParameterSpec& parameter, const Log& log) const {
    const std::string name = gguf_name(parameter.name);
    if (name.empty())
      refuse_model("parameters that llama.cpp has names for", "'" + parameter.name + "'");
    const GgmlType type = type_of(parameter, log);
    return {name, parameter.shape, type,
            [this, &parameter, type](const ByteSink& sink) { emit(parameter, type, sink); }};
  }

 private:
  GgmlType type_of(const ParameterSpec& parameter, const Log& log) const {
    if (parameter.shape.size() < 2 || dtype_ == GgufDtype::f32) return GgmlType::f32;
    if (dtype_ == GgufDtype::bf16) return GgmlType::bf16;
    if (dtype_ == GgufDtype::f16) return GgmlType::f16;
    if (dtype_ == GgufDtype::q8_0) {
      if (parameter.shape.back() % 32 == 0) return GgmlType::q8_0;
      log.warning("[convert] '{}' {} is written as F16: its rows are not whole blocks of 32",
                  parameter.name, to_string(parameter.shape));
      return GgmlType::f16;
    }
    const SafeDtype stored = weights_.compute().stored(parameter.name).stored;
    if (stored == SafeDtype::f32) return GgmlType::f32;
    return stored == SafeDtype::f16 ? GgmlType::f16 : GgmlType::bf16;
  }

  // Rows go in the file's order.
  void emit(const ParameterSpec& parameter, GgmlType type, const ByteSink& sink) const {
    const WeightValues copy =
        type == GgmlType::bf16 ? WeightValues::computed : WeightValues::master;
    ReadValues values = weights_.values(parameter, copy);
    if (const int64_t width = paired_width(architecture_, spec_, parameter.name); width > 0) {
      const int64_t cols = parameter.shape.size() == 1 ? 1 : parameter.shape.back();
      values = [read = std::move(values), cols, width](int64_t first, std::span<float> out) {
        read_rows(
            cols, first, out, [&](int64_t row) { return row_in_folder(row, width); }, read);
      };
    }
    stream_values(n_elems(parameter.shape), values,
                  [&](int64_t, std::span<const float> piece) {  // whole blocks
                    sink(encoded(parameter.name, type, piece));
                  });
  }

  static std::vector<std::byte> encoded(const std::string& name, GgmlType type,
                                        std::span<const float> values) {
    constexpr float kRoundsToInf = 65520;  // in FP16
    float limit = INFINITY;
    if (type == GgmlType::f16) limit = kRoundsToInf;
    if (type == GgmlType::q8_0) limit = 127 * kRoundsToInf;
    for (const float x : values) {
      if (!(std::fabs(x) < limit)) {
        throw Error(ErrorCode::bad_data,
                    "[convert] '{}': expected weights within {}'s range, got {}", name,
                    find_gguf_block(static_cast<uint32_t>(type))->name, x);
      }
    }
    if (type == GgmlType::f32) return encode_weights(values, Dtype::f32);
    if (type == GgmlType::bf16) return encode_weights(values, Dtype::bf16);
    if (type == GgmlType::f16) return encode_weights(values, Dtype::fp16);
    std::vector<std::byte> blocks(values.size() / 32 * 34);
    encode_q8_0(values, blocks);
    return blocks;
  }

  const ExportWeights& weights_;
  const ModelSpec& spec_;
  const GgufArchitecture& architecture_;
  GgufDtype dtype_;
};

std::vector<GgufTensorSource> gguf_tensors(const ExportWeights& weights, const Weights& source,
                                           const ModelSpec& spec, const Log& log) {
  std::vector<GgufTensorSource> tensors;
  if (spec.rope_scaling == RopeScaling::llama3) {
    const std::vector<float> divisors = llama3_divisors(spec);
    tensors.push_back(
        {kGgufFrequencies, {std::ssize(divisors)}, GgmlType::f32, [divisors](const ByteSink& sink) {
           sink(std::as_bytes(std::span(divisors)));
         }});
  }
  for (const ParameterSpec& parameter : weights.parameters())
    tensors.push_back(source.source(parameter, log));
  return tensors;
}

void add_vocabulary(Files& files, const Companions& beside, int64_t n_rows, GgufKeys& keys) {
  const std::string path = beside.path("tokenizer.json");
  if (!files.exists(path)) {
    refuse_model("a model with a tokenizer.json",
                 find_tokenizer(files, parent_path(path)).value_or("no tokenizer"));
  }
  const Json tokenizer = with_config({files, path, ""}, parse_json(files.read_text(path), path));
  const Json config = beside.json("tokenizer_config.json"),
             generation = beside.json("generation_config.json");
  const auto reader = make_tokenizer(files, path);
  add_gguf_vocabulary(keys, {path, tokenizer, config, generation, *reader, beside.templates()},
                      n_rows);
}

}  // namespace

ExportResult export_gguf(Files& files, const ModelSource& source, const std::string& path,
                         GgufDtype dtype, const Log& log) {
  if (files.exists(path)) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] '{}': expected a name that is free, got one that is there", path);
  }
  const ModelSpec spec = resolved(source.spec);
  if (gguf_architecture_of(spec.kind) == nullptr) {
    refuse_model("a model of kind llama, mistral, qwen2 or qwen3",
                 std::string(model_def(spec.kind).name));
  }
  const ExportWeights weights(files, source);
  const std::string title = file_name(path);
  GgufKeys keys = model_keys(spec, title.substr(0, title.rfind('.')), dtype);
  {
    const Companions beside(files, source, path + ".parts", log);
    add_vocabulary(files, beside, spec.vocab, keys);
  }
  const Weights values(weights, spec, dtype);
  const std::vector<GgufTensorSource> tensors = gguf_tensors(weights, values, spec, log);
  const std::string header = gguf_header_bytes(keys, tensors);
  check_says_all(spec, header);
  write_atomically(files, path, [&](FileWriter& out) { write_gguf(out, header, tensors); });
  return {.n_tensors = std::ssize(tensors),
          .n_bytes = static_cast<int64_t>(files.size(path)),
          .n_shards = 1};
}

}  // namespace octet
