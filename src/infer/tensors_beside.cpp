#include "infer/tensors_beside.h"

#include <algorithm>
#include <set>
#include <string>

#include "infer/tensor_streams.h"
#include "io/model_files.h"
#include "nn/hf_names.h"
#include "nn/vision.h"

namespace octet {
namespace {

// Indices, and what a parameter has the values of.
bool is_copy(std::string_view stored) {
  const bool is_decoder = stored.starts_with("cls.predictions.decoder.") ||
                          stored.starts_with("lm_head.decoder.") ||
                          stored == "vocab_projector.weight";
  return is_decoder || stored.ends_with(".position_ids") || stored.ends_with(".token_type_ids");
}

// True if config.json names a class that is read as another one.
bool is_alias(const ModelDef& def, const Json& config) {
  const Json names = config.value("architectures", Json::array());
  return !names.empty() && std::ranges::count(def.head_aliases, names[0].get<std::string>(),
                                              &HeadAlias::architecture) > 0;
}

// True if the tensor, which is no parameter, makes one row of what an encoder reads.
bool makes_pooled(const ModelDef& def, std::string_view stored) {
  if (is_tower_alone(def.kind)) return !stored.starts_with("visual_projection.");
  return stored.find("pooler.dense.") != std::string_view::npos;
}

TensorSource source_beside(const ModelFiles& files, const std::string& name,
                           const std::string& stored, std::optional<Dtype> dtype) {
  const StoredTensor& tensor = files.at(stored);
  const bool is_real = tensor.stored == SafeDtype::f32 || tensor.stored == SafeDtype::bf16 ||
                       tensor.stored == SafeDtype::f16;
  if (!is_real || !dtype || tensor.stored == stored_as(*dtype)) return copied(files, stored, name);
  return rounded(tensor_decl(name, *dtype, tensor.shape),
                 [files, stored](int64_t first, std::span<float> out) {
                   files.read_values(stored, first, out);
                 });
}

}  // namespace

std::vector<TensorSource> tensors_beside(const Files& files, const ModelSource& source,
                                         const Json& config, std::optional<Dtype> dtype) {
  const ModelDef& def = model_def(source.spec.kind);
  const std::string& folder = source.run ? source.run->model.path : source.folder;
  const bool has_parts = def.sees_pictures;  // what nothing reads of a tower goes along
  if ((def.heads.empty() && !has_parts) || folder.empty() || !files.exists(folder) ||
      !has_model_files(files, folder))
    return {};
  const ModelFiles model = ModelFiles::open(files, folder);
  const bool keeps_head = is_alias(def, config);
  std::vector<TensorSource> sources;
  for (const std::string& stored : model.names()) {
    const bool is_pooler = makes_pooled(def, stored);
    if (parameter_name(source.spec, stored) || is_copy(stored)) continue;
    if (has_parts && stored != def.head) {
      const std::string name = def.renamed ? def.renamed(source.spec, stored) : stored;
      if (def.skips != nullptr && def.skips(source.spec, name))
        sources.push_back(source_beside(model, name, stored, dtype));
    }
    if (!is_pooler && !keeps_head) continue;
    const bool is_whole =
        stored.starts_with(def.prefix) || !(is_pooler || stored.starts_with("embeddings."));
    sources.push_back(
        source_beside(model, is_whole ? stored : std::string(def.prefix) + stored, stored, dtype));
  }
  return sources;
}

void leave_unquantized(Json& quantization, const std::vector<TensorSource>& beside,
                       std::string_view prefix) {
  std::set<std::string> modules;
  for (const TensorSource& one : beside) {
    const std::string module = one.decl.name.substr(0, one.decl.name.rfind('.'));
    modules.insert(module);
    if (module.starts_with(prefix)) modules.insert(module.substr(prefix.size()));
  }
  for (const char* key : {"ignore", "modules_to_not_convert"}) {
    if (!quantization.contains(key) || !quantization[key].is_array()) continue;
    for (const std::string& module : modules) {
      if (std::ranges::count(quantization[key], Json(module)) == 0)
        quantization[key].push_back(module);
    }
  }
}

std::optional<Dtype> dtype_beside(const ModelSource& source, ExportDtype dtype,
                                  std::string_view word) {
  if (dtype == ExportDtype::as_stored && !source.run) return std::nullopt;
  if (dtype == ExportDtype::as_stored) return word == "float32" ? Dtype::f32 : Dtype::bf16;
  return dtype == ExportDtype::f32 ? Dtype::f32 : Dtype::bf16;
}

}  // namespace octet
