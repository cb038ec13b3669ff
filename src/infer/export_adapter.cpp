// Adapters as PEFT stores them.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/named_enum.h"
#include "infer/adapter_note.h"
#include "infer/export.h"
#include "infer/peft_adapter.h"
#include "infer/tensor_streams.h"
#include "nn/head_parameters.h"
#include "nn/hf_names.h"

namespace octet {
namespace {

// PEFT takes the last part of a module's name for all modules that end so; those of encoders end as
// linears outside of the layers do.
Json target_modules(const ModelSpec& spec, const std::vector<LoraAdapter>& adapters) {
  std::map<std::string, int64_t> n_linears, n_adapted;
  for (const LoraAdapter& linear : adaptable_linears(spec)) ++n_linears[linear.part()];
  for (const LoraAdapter& adapter : adapters) ++n_adapted[adapter.part()];
  std::set<std::string> names;
  for (const LoraAdapter& adapter : adapters) {
    const std::string part = adapter.part();
    const bool is_whole = model_def(spec.kind).writes_text && n_adapted[part] == n_linears[part];
    names.insert(is_whole ? part : module_of_class(spec, adapter.module));
  }
  return Json(names);
}

// Modules trained whole, which PEFT takes from the adapter's file: no module within another.
Json saved_modules(const ModelSpec& spec, const std::vector<std::string>& parameters) {
  std::set<std::string> modules;
  for (const std::string& name : parameters)
    modules.insert(module_of_class(spec, name.substr(0, name.rfind('.'))));
  std::string outer;  // those within it follow it
  std::erase_if(modules, [&](const std::string& module) {
    const bool is_inner = !outer.empty() && module.starts_with(outer + ".");
    if (!is_inner) outer = module;
    return is_inner;
  });
  return Json(modules);
}

// PEFT keeps a module whole: a masked head with the embedding that it is tied to, which is no part
// of the adapters.
void expect_own_modules(const ModelSpec& spec, const AdapterNote& note) {
  if (model_def(spec.kind).heads.empty() || head_of(spec).head != ModelHead::masked) return;
  const std::set<std::string> features = feature_parameters(spec);
  const auto of_head = std::ranges::find_if(
      note.lora.head, [&](const std::string& name) { return !features.contains(name); });
  if (of_head == note.lora.head.end()) return;
  throw Error(
      ErrorCode::invalid_argument,
      "[convert] adapters alone: expected no masked head that is trained whole ('{}'), which "
      "PEFT keeps together with the embedding that it is tied to: a merged model has it",
      *of_head);
}

// True if an embedding that is the head as well is trained whole.
bool saves_tied(const ModelSpec& spec, const AdapterNote& note) {
  return spec.tied && model_def(spec.kind).writes_text &&
         std::ranges::count(note.lora.head, model_parameters(spec).front().name) > 0;
}

Json adapter_config(const ModelSpec& spec, const AdapterNote& note) {
  const std::vector<LoraAdapter> adapters = adapters_of(spec, note.lora);
  const bool is_conv = std::ranges::any_of(adapters, [](const LoraAdapter& one) {
    return !one.out_in;  // transformers' Conv1D
  });
  const Json saved = note.lora.head.empty() ? Json() : saved_modules(spec, note.lora.head);
  Json ranks = Json::object(), alphas = Json::object();
  for (const LoraAdapter& one : adapters) {
    const std::string module = module_of_class(spec, one.module);
    if (one.rank != note.lora.rank) ranks[module] = one.rank;
    if (one.alpha != note.lora.alpha) alphas[module] = one.alpha;
  }
  return {{"peft_type", "LORA"},
          {"task_type", model_def(spec.kind).writes_text ? Json("CAUSAL_LM") : Json()},
          {"base_model_name_or_path", note.base},
          {"r", note.lora.rank},
          {"lora_alpha", note.lora.alpha},
          {"use_rslora", note.lora.kind == LoraKind::rslora},
          {"use_dora", note.lora.kind == LoraKind::dora},
          {"rank_pattern", ranks},
          {"alpha_pattern", alphas},
          {"lora_dropout", note.lora.dropout},
          {"target_modules", target_modules(spec, adapters)},
          {"bias", "none"},
          {"fan_in_fan_out", is_conv},
          {"init_lora_weights", true},
          {"inference_mode", true},
          {"modules_to_save", saved}};
}

}  // namespace

ExportResult export_adapter(Files& files, const ModelSource& source, const std::string& folder,
                            const Log& log) {
  const auto note = find_adapter_note(files, source.weights.path);
  if (!note) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] '{}': expected a run that trained adapters (lora.rank), got {}",
                source.folder, source.run ? "one that trained all weights" : "a model's folder");
  }
  expect_own_modules(source.spec, *note);
  const auto reader = SafetensorsReader::open(files, source.weights.path);
  std::vector<TensorSource> tensors;
  const auto add = [&](const StoredTensor& tensor, std::string_view name) {
    TensorDecl decl = tensor;
    decl.name = fmt::format("{}{}", kPeftPrefix, name);
    tensors.push_back(copied(decl, [&reader, &tensor](std::span<std::byte> out, uint64_t first) {
      reader.read(tensor, out, first);
    }));
  };
  ExportResult result{.n_shards = 1};
  for (const StoredTensor& tensor : reader.tensors())
    add(tensor, module_of_class(source.spec, tensor.name));
  if (saves_tied(source.spec, *note))  // PEFT writes both
    add(reader.at(model_parameters(source.spec).front().name),
        module_of_class(source.spec, std::string(model_def(source.spec.kind).head)));
  for (const TensorSource& tensor : tensors) {
    ++result.n_tensors;
    result.n_bytes += static_cast<int64_t>(tensor.decl.n_bytes());
  }
  Json config = adapter_config(source.spec, *note);
  if (saves_tied(source.spec, *note)) config["ensure_weight_tying"] = true;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  // A base of an encoder has another head than the run, and so other weights.
  if (model_def(source.spec.kind).writes_text) metadata[kPeftBaseHash] = note->base_hash;
  if (model_def(source.spec.kind).module_name != nullptr)
    log.info("modules have their names of transformers 5, not those of 4 that files have");
  take_export_folder(files, folder);
  write_atomically(files, join_path(folder, kPeftWeights),
                   [&](FileWriter& out) { write_safetensors(out, tensors, metadata); });
  copy_companions(files, source, folder, log);
  write_atomically(files, join_path(folder, kPeftConfig), config.dump(2) + "\n");
  return result;
}

}  // namespace octet
