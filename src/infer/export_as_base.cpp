#include "infer/export_as_base.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "formats/arrays.h"
#include "infer/matrix_quantizer.h"
#include "io/modelopt_config.h"
#include "io/quantization_config.h"

namespace octet {
namespace {

constexpr const char *kBaseConfig = "config.json", *kBaseModelOpt = "hf_quant_config.json",
                     *kBaseQuantization = "quantization_config";

std::string base_folder(const ModelSource& source) {
  if (source.run && !source.run->model.path.empty()) return source.run->model.path;
  if (!source.weights.adapter.empty()) return source.weights.path;
  throw Error(ErrorCode::invalid_argument,
              "[convert] --dtype as-base: expected a run that began with a model folder, or an "
              "adapter beside one, got '{}'",
              source.folder);
}

// A parameter of the export and of the base.
class Parameter {
 public:
  Parameter(std::shared_ptr<const WeightReader> base, const ExportWeights& weights,
            const ParameterSpec& spec)
      : base_(std::move(base)),
        spec_(spec),
        own_(weights.values(spec, WeightValues::master)),
        computed_(weights.compute().stored(spec.name).dtype.value_or(Dtype::f32)) {}

  // True if all elements are the base's, or what these round to in the type that the run computed
  // in.
  bool is_untouched() const {
    const std::scoped_lock lock(mutex_);
    if (!is_untouched_) is_untouched_ = equals_base();
    return *is_untouched_;
  }

 private:
  bool equals_base() const {
    const Dtype dtype = is_high_precision(computed_) ? computed_ : Dtype::f32;
    std::vector<float> theirs, rounded;
    bool is_equal = true;
    stream_values(n_elems(spec_.shape), own_, [&](int64_t first, std::span<const float> own) {
      if (!is_equal) return;
      theirs.resize(own.size());
      rounded.resize(own.size());
      base_->read(spec_.name, first, theirs);
      decode_values(dtype, encode_weights(theirs, dtype), rounded);
      for (size_t i = 0; i < own.size(); ++i)
        is_equal = is_equal && (own[i] == theirs[i] || own[i] == rounded[i]);
    });
    return is_equal;
  }

  std::shared_ptr<const WeightReader> base_;
  const ParameterSpec& spec_;
  ReadValues own_;
  Dtype computed_;
  mutable std::mutex mutex_;
  mutable std::optional<bool> is_untouched_;
};

// The type of a tensor that is not in eight bits.
Dtype real_dtype(const TensorDecl& like) {
  const Dtype dtype = native_dtype(like.stored).value_or(Dtype::bf16);
  return is_high_precision(dtype) ? dtype : Dtype::bf16;
}

// The base's tensor where the parameter is untouched, else the new one.
TensorSource unless_untouched(std::shared_ptr<const Parameter> of, TensorSource base,
                              TensorSource changed) {
  return {std::move(changed.decl),
          [of = std::move(of), base = std::move(base.emit), changed = std::move(changed.emit)](
              const ByteSink& sink) { return of->is_untouched() ? base(sink) : changed(sink); }};
}

Quantizer quantizer_like(const WeightReader& base, const std::string& parameter, bool has_powers) {
  const StoredTensor& weight = base.stored(parameter);
  const StoredTensor& scales = base.scales(parameter)->tensor;
  const bool is_known = scales.stored == SafeDtype::f32 || scales.stored == SafeDtype::bf16;
  if (weight.dtype != Dtype::e4m3 || !is_known || !base.packed_name(parameter).empty()) {
    throw Error(ErrorCode::bad_data,
                "[convert] --dtype as-base: '{}' must be F8_E4M3 with scales in F32 or BF16, got "
                "{} with {}",
                weight.name, safe_dtype_name(weight.stored), safe_dtype_name(scales.stored));
  }
  return {.format = Dtype::e4m3,
          .scale_type = has_powers ? Dtype::f32 : native_dtype(scales.stored).value(),
          .rule = has_powers ? ScaleRule::power_ceil : ScaleRule::linear};
}

}  // namespace

BaseForm::BaseForm(const Files& files, const ModelSource& source) {
  const std::string folder = base_folder(source);
  base_ = std::make_shared<const WeightReader>(files, folder, source.spec, source.nonfinite,
                                               HeadWeights::may_be_new);
  const auto config = read_quantization_config(files, folder);
  has_powers_ = config && config->has_power_blocks;
  bool has_codes = false;
  for (const ParameterSpec& p : model_parameters(source.spec)) {
    const bool is_new = base_->new_parameters().contains(p.name);
    if (is_new && p.shape.size() == 2) new_modules_.push_back(p.name.substr(0, p.name.rfind('.')));
    if (is_new || base_->scales(p.name) == nullptr) continue;
    quantizer_like(*base_, p.name, has_powers_);
    has_codes = true;
  }
  if (!has_codes) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] --dtype as-base: expected a base of 8-bit weights, got '{}'", folder);
  }
  const std::string path = join_path(folder, kBaseConfig);
  const Json json = parse_json(files.read_text(path), path);
  const bool is_own = json.contains(kBaseQuantization) && !json[kBaseQuantization].is_null();
  const auto modelopt = read_modelopt_config(files, folder);
  quantization_ = is_own ? json[kBaseQuantization] : modelopt.value_or(nullptr);
  if (modelopt) texts_.emplace(kBaseModelOpt, files.read_text(join_path(folder, kBaseModelOpt)));
}

Json BaseForm::quantization() const {
  Json json = quantization_;
  const char* key = json.contains("modules_to_not_convert") ? "modules_to_not_convert"
                    : json.contains("exclude_modules")      ? "exclude_modules"
                                                            : "ignore";
  if (new_modules_.empty()) return json;
  if (!json.contains(key) || !json[key].is_array()) json[key] = Json::array();
  for (const std::string& module : new_modules_) json[key].push_back(module);
  return json;
}

std::vector<TensorSource> BaseForm::tensors(const ExportWeights& weights) const {
  std::vector<TensorSource> sources;
  std::set<std::string> taken;  // scales of weights, by their names beside parameters
  for (const ParameterSpec& p : weights.parameters()) {
    const ReadValues values = weights.values(p, WeightValues::master);
    if (base_->new_parameters().contains(p.name)) {  // as the run computed it
      sources.push_back(rounded(
          tensor_decl(p.name, real_dtype(weights.compute().stored(p.name)), p.shape), values));
      continue;
    }
    const auto from = std::make_shared<const Parameter>(base_, weights, p);
    const StoredTensor& weight = base_->stored(p.name);
    TensorDecl data = weight;
    data.name = p.name;
    const TensorSource copy =
        copied(data, [base = base_, name = p.name](std::span<std::byte> out, uint64_t first) {
          base->read_stored(name, out, first);
        });
    const WeightReader::Scales* scales = base_->scales(p.name);
    if (scales == nullptr) {
      const TensorDecl decl = tensor_decl(p.name, real_dtype(weight), p.shape);
      sources.push_back(unless_untouched(from, copy, rounded(decl, values)));
      continue;
    }
    const TensorSource grid = copied(base_->files(), scales->tensor.name,
                                     p.name + scales->tensor.name.substr(weight.name.size()));
    taken.insert(scales->tensor.name);
    const std::vector<TensorSource> made =
        quantized(MatrixQuantizer(quantizer_like(*base_, p.name, has_powers_),
                                  {p.shape[0], p.shape[1]}, scales->block),
                  values, data, grid.decl);
    sources.push_back(unless_untouched(from, copy, made[0]));
    sources.push_back(unless_untouched(from, grid, made[1]));
  }
  for (const auto& beside : base_->quantization_tensors()) {
    if (!taken.contains(beside.second))
      sources.push_back(copied(base_->files(), beside.second, beside.first));
  }
  return sources;
}

}  // namespace octet
