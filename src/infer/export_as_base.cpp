#include "infer/export_as_base.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"
#include "formats/arrays.h"
#include "infer/matrix_quantizer.h"
#include "infer/packed_weight.h"
#include "infer/stored_weights.h"
#include "io/modelopt_config.h"
#include "io/quantization_config.h"

namespace octet {
namespace {

constexpr int64_t kBasePiece = 512 << 10;  // elements
constexpr const char *kBaseConfig = "config.json", *kBaseModelOpt = "hf_quant_config.json",
                     *kBaseQuantization = "quantization_config";

// Calls f(first, n) for consecutive pieces of n_elems elements.
template <typename F>
void in_pieces(int64_t n_elems, F&& f) {
  for (int64_t first = 0; first < n_elems; first += kBasePiece)
    f(first, std::min(kBasePiece, n_elems - first));
}

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
      : base_(std::move(base)), weights_(weights), spec_(spec) {}

  const WeightReader& base() const { return *base_; }
  const std::string& name() const { return spec_.name; }
  const Shape& shape() const { return spec_.shape; }
  void read(int64_t first, std::span<float> out) const { weights_.read_master(spec_, first, out); }

  // True if all elements are the base's, or what these round to in the type that the run computed
  // in.
  bool is_untouched() const {
    const std::scoped_lock lock(mutex_);
    if (!is_untouched_) is_untouched_ = equals_base();
    return *is_untouched_;
  }

 private:
  bool equals_base() const {
    const StoredTensor& computed = weights_.compute().stored(spec_.name);
    const Dtype dtype =
        computed.dtype && is_high_precision(*computed.dtype) ? *computed.dtype : Dtype::f32;
    std::vector<float> own, theirs, rounded;
    bool is_equal = true;
    in_pieces(n_elems(spec_.shape), [&](int64_t first, int64_t n) {
      if (!is_equal) return;
      own.resize(static_cast<size_t>(n));
      theirs.resize(own.size());
      rounded.resize(own.size());
      read(first, own);
      base_->read(spec_.name, first, theirs);
      decode_values(dtype, encode_weights(theirs, dtype), rounded);
      for (size_t i = 0; i < own.size(); ++i)
        is_equal = is_equal && (own[i] == theirs[i] || own[i] == rounded[i]);
    });
    return is_equal;
  }

  std::shared_ptr<const WeightReader> base_;
  const ExportWeights& weights_;
  const ParameterSpec& spec_;
  mutable std::mutex mutex_;
  mutable std::optional<bool> is_untouched_;
};

void copy_stored(const Parameter& from, const ByteSink& sink) {
  const uint64_t n_bytes = from.base().stored(from.name()).n_bytes();
  std::vector<std::byte> bytes;
  for (uint64_t first = 0; first < n_bytes; first += bytes.size()) {
    bytes.resize(static_cast<size_t>(std::min<uint64_t>(4 * kBasePiece, n_bytes - first)));
    from.base().read_stored(from.name(), bytes, first);
    sink(bytes);
  }
}

// A weight of E4M3, whose codes and scales are two tensors, whichever is written first.
class Codes : public MatrixQuantizer {
 public:
  Codes(std::shared_ptr<const Parameter> from, const Quantizer& quantizer, const BlockShape& block)
      : MatrixQuantizer(quantizer, {from->shape()[0], from->shape()[1]}, block),
        from_(std::move(from)) {}

  void emit_codes(const ByteSink& sink) {
    if (from_->is_untouched()) return copy_stored(*from_, sink);
    measure_once();
    std::vector<float> values;
    std::vector<uint8_t> codes;
    in_pieces(n_elems(from_->shape()), [&](int64_t first, int64_t n) {
      values.resize(static_cast<size_t>(n));
      codes.resize(values.size());
      from_->read(first, values);
      encode(first, values, codes);
      sink(std::as_bytes(std::span(codes)));
    });
  }

  void emit_scales(const ByteSink& sink) {
    const WeightReader& base = from_->base();
    if (from_->is_untouched())
      return sink(base.files().read(base.scales(from_->name())->tensor.name));
    measure_once();
    sink(encode_weights(scales(), quantizer().scale_type));
  }

 private:
  void measure_once() {
    if (!scales().empty()) return;
    if (measure([&](int64_t first, std::span<float> out) { from_->read(first, out); })) return;
    throw Error(ErrorCode::bad_data, "[convert] '{}': expected finite weights, got NaN or Inf",
                from_->name());
  }

  std::shared_ptr<const Parameter> from_;
};

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

// In the type of the base, or as the run computed it where the base has none.
TensorSource real_tensor(const std::shared_ptr<const Parameter>& from, Dtype dtype, bool is_new) {
  return {tensor_decl(from->name(), dtype, from->shape()),
          [from, dtype, is_new](const ByteSink& sink) {
            if (!is_new && from->is_untouched()) return copy_stored(*from, sink);
            std::vector<float> values;
            in_pieces(n_elems(from->shape()), [&](int64_t first, int64_t n) {
              values.resize(static_cast<size_t>(n));
              from->read(first, values);
              sink(encode_weights(values, dtype));
            });
          }};
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
    const auto from = std::make_shared<const Parameter>(base_, weights, p);
    const bool is_new = base_->new_parameters().contains(p.name);
    const WeightReader::Scales* scales = is_new ? nullptr : base_->scales(p.name);
    if (scales == nullptr) {
      const StoredTensor& like = is_new ? weights.compute().stored(p.name) : base_->stored(p.name);
      const Dtype dtype = native_dtype(like.stored).value_or(Dtype::bf16);
      sources.push_back(real_tensor(from, is_high_precision(dtype) ? dtype : Dtype::bf16, is_new));
      continue;
    }
    const auto codes =
        std::make_shared<Codes>(from, quantizer_like(*base_, p.name, has_powers_), scales->block);
    const StoredTensor& weight = base_->stored(p.name);
    TensorDecl data = weight, grid = scales->tensor;
    data.name = p.name;
    grid.name = p.name + scales->tensor.name.substr(weight.name.size());
    taken.insert(scales->tensor.name);
    sources.push_back({data, [codes](const ByteSink& sink) { codes->emit_codes(sink); }});
    sources.push_back({grid, [codes](const ByteSink& sink) { codes->emit_scales(sink); }});
  }
  for (const auto& beside : base_->quantization_tensors()) {
    const std::string& stored = beside.second;
    if (taken.contains(stored)) continue;
    TensorDecl decl = base_->files().at(stored);
    decl.name = beside.first;
    sources.push_back(
        {decl, [base = base_, stored](const ByteSink& sink) { sink(base->files().read(stored)); }});
  }
  return sources;
}

}  // namespace octet
