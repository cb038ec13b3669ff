#include "infer/export.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/error.h"
#include "base/gguf.h"
#include "base/json.h"
#include "base/named_enum.h"
#include "infer/add_tokens.h"
#include "infer/export_as_base.h"
#include "infer/export_tensors.h"
#include "infer/export_tokenizer.h"
#include "infer/tensors_beside.h"
#include "io/modelopt_config.h"
#include "nn/hf_config.h"
#include "nn/hf_parts.h"

namespace octet {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kQuantization = "quantization_config";

void check_model(const ModelSpec& spec, ExportDtype dtype) {
  const ModelDef& def = model_def(spec.kind);
  check_exportable(spec);
  const bool is_for_others =
      is_eight_bit(dtype) && dtype != ExportDtype::hif8 && dtype != ExportDtype::as_base;
  const bool has_linears = is_for_others ? def.plain_linears : !def.is_convolutional;
  if (is_eight_bit(dtype) && !has_linears) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --dtype {}: expected a model of plain linears, got {}, whose {}",
                enum_name(dtype), def.name,
                def.is_convolutional ? "convolutions octet ptq quantizes"
                                     : "8-bit weights no other program loads");
  }
}

Json fp8_tensor_config(const std::string& head) {
  const Json weights = {{"num_bits", 8},      {"type", "float"},  {"strategy", "tensor"},
                        {"symmetric", true},  {"dynamic", false}, {"group_size", nullptr},
                        {"actorder", nullptr}};
  const Json group = {{"targets", {"Linear"}},
                      {"weights", weights},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"quantization_status", "compressed"},
          {"kv_cache_scheme", nullptr},
          {"ignore", {head}},
          {"config_groups", {{"group_0", group}}}};
}

// Octet's own (docs/formats/quantized.md), in words for people whose program refuses it.
Json hif8_config(const std::string& head) {
  return {
      {"quant_method", "octet"},
      {"description",
       "linears' weights are HiFloat8 codes (U8), to be multiplied by weight_scale; of programs "
       "that load model folders Octet alone reads them"},
      {"groups", {{{"targets", {"Linear"}}, {"format", dtype_name(Dtype::hif8)}}}},
      {"ignore", {head}}};
}

// transformers' name for the dtype that other than 8-bit tensors have. Of codes in U8, which it
// would take for numbers, one that it does not know, so that it ends instead.
std::string_view dtype_word(const std::vector<TensorSource>& tensors) {
  const auto is_hif8 = [](const TensorSource& one) { return one.decl.dtype == Dtype::hif8; };
  if (std::ranges::any_of(tensors, is_hif8)) return "hifloat8";
  SafeDtype widest = SafeDtype::bf16;
  for (const TensorSource& tensor : tensors) {
    const SafeDtype stored = tensor.decl.stored;
    const bool is_scale =
        tensor.decl.name.ends_with("_scale") || tensor.decl.name.ends_with("_scale_inv");
    const bool is_statistic =
        tensor.decl.name.ends_with(".running_mean") || tensor.decl.name.ends_with(".running_var");
    if (is_scale || is_statistic) continue;
    if (stored == SafeDtype::f32) return "float32";
    if (stored == SafeDtype::f16) widest = stored;
  }
  return widest == SafeDtype::f16 ? "float16" : "bfloat16";
}

// The source's own keys, with those that say what the model is as we read them, in both spellings.
Json config_of(const Files& files, const ModelSource& source) {
  const std::string path = join_path(source.folder, kConfig);
  Json json = files.exists(path) ? parse_json(files.read_text(path), path) : Json::object();
  // First weights, too: transformers would take the ids of the architecture's best known model.
  if (has_own_tokenizer(source)) json.update(ids_of_tokenizer(files, source));
  Json own = parse_own_json(hf_config_text(source.spec));
  if (json.contains("id2label") && own.contains("id2label") &&
      json["id2label"].size() == own["id2label"].size()) {
    for (const char* key : {"id2label", "label2id"}) own.erase(key);  // which have names there
  }
  // A class that is read as another one keeps its name: the rest of its head goes along.
  for (const HeadAlias& alias : model_def(source.spec.kind).head_aliases) {
    const bool is_it =
        alias.head == head_of(source.spec).head &&
        json.value("architectures", Json()) == Json::array({std::string(alias.architecture)});
    if (is_it) own.erase("architectures");
  }
  put_keys(own, json);
  return json;
}

// `modelopt`: what a file beside config.json says of the weights, where there is one.
Json quantization_of(const Json& config, const ExportWeights& weights, ExportDtype dtype,
                     const std::optional<Json>& modelopt) {
  const std::string_view head = weights.model().head;
  const std::string module(head.substr(0, head.rfind('.')));
  switch (dtype) {
    case ExportDtype::as_stored:
      if (weights.compute().is_merged()) return nullptr;
      if (config.contains(kQuantization) && !config[kQuantization].is_null())
        return config[kQuantization];
      return modelopt.value_or(nullptr);
    case ExportDtype::fp8_block: {
      Json json = fp8_block_config({module});
      if (weights.keeps_powers()) json["scale_fmt"] = "ue8m0";
      return json;
    }
    case ExportDtype::fp8_tensor:
      return fp8_tensor_config(module);
    case ExportDtype::hif8:
      return hif8_config(module);
    default:
      return nullptr;
  }
}

std::vector<std::span<const TensorSource>> shards_of(const std::vector<TensorSource>& tensors,
                                                     uint64_t max_bytes) {
  std::vector<std::span<const TensorSource>> shards;
  size_t first = 0;
  uint64_t n_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t n = tensors[i].decl.n_bytes();
    if (i > first && n > max_bytes - std::min(n_bytes, max_bytes)) {
      shards.push_back(std::span(tensors).subspan(first, i - first));
      first = i;
      n_bytes = 0;
    }
    n_bytes += n;
  }
  shards.push_back(std::span(tensors).subspan(first));
  return shards;
}

ExportResult write_shards(Files& files, const std::vector<TensorSource>& tensors,
                          const std::string& folder, uint64_t max_shard) {
  const auto shards = shards_of(tensors, max_shard);
  ExportResult result{.n_tensors = std::ssize(tensors), .n_shards = std::ssize(shards)};
  Json map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_atomically(files, join_path(folder, name), [&](FileWriter& out) {
      write_safetensors(out, shards[i], {{"format", "pt"}});
    });
    for (const TensorSource& tensor : shards[i]) {
      map[tensor.decl.name] = name;
      result.n_bytes += static_cast<int64_t>(tensor.decl.n_bytes());
    }
  }
  if (shards.size() == 1) return result;
  const Json index = {{"metadata", {{"total_size", result.n_bytes}}}, {"weight_map", map}};
  write_atomically(files, join_path(folder, kIndex), index.dump(2) + "\n");
  return result;
}

}  // namespace

// Blocks at the edges are as if padded with zeros, as GEMM kernels take them. Some programs that
// dequantize take the grid of scales for an even one, and refuse or misread such a weight.
std::optional<std::string> partial_blocks_warning(std::string_view op, const std::string& weight,
                                                  const Shape& shape, std::string_view instead) {
  const auto is_partial = [](int64_t extent) { return extent > 128 && extent % 128 != 0; };
  if (!std::ranges::any_of(shape, is_partial)) return std::nullopt;
  return fmt::format(
      "[{}] '{}' {} has partial blocks of 128 x 128, which not every program reads; {}", op, weight,
      to_string(shape), instead);
}

void take_export_folder(Files& files, const std::string& folder) {
  if (is_gguf_name(folder)) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] '{}': expected a folder to write, got the name of a GGUF file, which "
                "`octet convert` makes of a run or a model folder",
                folder);
  }
  if (files.exists(folder)) {
    if (files.is_directory(folder) && files.list(folder).empty()) return;
    throw Error(ErrorCode::invalid_argument,
                "[convert] '{}': expected a name that is free or an empty folder, got {}", folder,
                files.is_directory(folder) ? "a folder with files" : "a file");
  }
  files.create_directories(folder);
}

Json fp8_block_config(const std::vector<std::string>& kept_modules) {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {128, 128}},
          {"modules_to_not_convert", kept_modules}};
}

void check_exportable(const ModelSpec& spec) {
  ModelSpec read = parse_hf_config(hf_config_text(spec), kConfig);
  const ModelSpec full = resolved(spec);
  read.rope_seq = full.rope_seq, read.images = full.images;  // the run's, not the model's
  const ModelDef& def = model_def(spec.kind);
  // A head without parameters of its own is written as the model below it.
  const auto written = [](const ModelSpec& one) {
    const HeadDef& head = head_of(one);
    const bool says_loss = head.head == ModelHead::value || head.head == ModelHead::multi_label;
    return says_loss ? enum_name(head.head) : head.architecture;
  };
  if (!def.heads.empty() && written(read) == written(full)) read.head = full.head;
  read.pooling = full.pooling;  // modules.json says it
  if (full.mlp_relu && full.classifier_hidden == 0) read.gelu = full.gelu;
  if (!def.reads_text) {  // what a run has of text
    read.vocab = full.vocab;
    read.max_positions = full.max_positions;
    read.rope_original_max_position = full.rope_original_max_position;
  }
  if (read == full) return;
  for (const ModelField& field : model_fields()) {
    const std::string ours = field_text(field, full), theirs = field_text(field, read);
    if (ours == theirs) continue;
    throw Error(ErrorCode::invalid_argument,
                "[convert] {}: expected {}, which {}'s config.json has no other key for, got {}",
                field.name(), theirs, def.name, ours);
  }
  throw Error(ErrorCode::invalid_argument,
              "[convert] expected a shape that {}'s config.json has keys for, got another",
              model_def(spec.kind).name);
}

ModelSource with_folded_norms(ModelSource source) {
  const ModelDef& def = model_def(source.spec.kind);
  if (def.norm_behind == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "[fold_norms] expected a model with batch norms, got kind {}", def.name);
  }
  if (source.run && !source.spec.folded_norms) {
    throw Error(ErrorCode::invalid_argument,
                "[fold_norms] expected a model folder of kind {}, whose batch norms are folded "
                "into its convolutions, got the run '{}': octet convert makes one of it",
                def.name, source.folder);
  }
  source.spec.folded_norms = true;
  return source;
}

ExportResult write_model_folder(Files& files, const ModelSource& source, const std::string& folder,
                                const ExportContent& content, const ExportOptions& options) {
  Json config = config_of(files, source);
  config.erase(kQuantization);
  const std::string word(dtype_word(content.tensors));
  const std::vector<TensorSource> beside =
      tensors_beside(files, source, config, dtype_beside(source, options.dtype, word));
  if (!content.quantization.is_null()) {
    config[kQuantization] = content.quantization;
    leave_unquantized(config[kQuantization], beside, model_def(source.spec.kind).prefix);
  }
  config["dtype"] = config["torch_dtype"] = word;
  std::vector<TensorSource> tensors = content.tensors;
  tensors.insert(tensors.end(), beside.begin(), beside.end());
  ExportResult result;
  if (options.weights == WeightFiles::written)
    result = write_shards(files, tensors, folder, options.max_shard);
  copy_companions(files, source, folder, options.log);
  for (const auto& [name, text] : content.texts)
    write_atomically(files, join_path(folder, name), text);
  if (content.finish) content.finish(files, folder);
  write_atomically(files, join_path(folder, kConfig), config.dump(2) + "\n");
  return result;
}

ExportResult export_model(Files& files, const ModelSource& source, const std::string& folder,
                          const ExportOptions& options) {
  check_model(source.spec, options.dtype);
  const ExportWeights weights(files, source);
  if (weights.lacks_frozen())
    options.log.warning(
        "[convert] '{}' is gone: frozen weights are written as the run rounded them",
        source.run->model.path);
  for (const ParameterSpec& p : weights.parameters()) {
    if (options.dtype != ExportDtype::fp8_block || !weights.is_linear(p)) continue;
    const auto text = partial_blocks_warning("convert", p.name, p.shape, "fp8-tensor has none");
    if (!text) continue;
    options.log.write(LogLevel::warning, *text);
    break;
  }
  ExportContent content;
  if (options.dtype == ExportDtype::as_base) {
    const BaseForm form(files, source);
    content = {.tensors = form.tensors(weights),
               .quantization = form.quantization(),
               .texts = form.texts()};
  } else {
    content = {.tensors = export_tensors(weights, options.dtype),
               .quantization = quantization_of(config_of(files, source), weights, options.dtype,
                                               read_modelopt_config(files, source.folder))};
  }
  ModelSource written = source;
  if (!options.added.empty()) {
    const AddedVocabulary added(files, source, options.added);
    content.tensors = added.with_rows(std::move(content.tensors));
    content.finish = [added](Files& to, const std::string& in) { added.put_tokens(to, in); };
    written.spec.vocab = added.vocab();
  }
  take_export_folder(files, folder);
  return write_model_folder(files, written, folder, content, options);
}

}  // namespace octet
