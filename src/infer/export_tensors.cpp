#include "infer/export_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/named_enum.h"
#include "formats/arrays.h"
#include "formats/codec.h"
#include "infer/convolution_weights.h"
#include "infer/matrix_quantizer.h"
#include "infer/stored_weights.h"
#include "infer/trained_scales.h"
#include "ir/fixed_scale.h"
#include "ir/states.h"
#include "math/master.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

Shape file_shape(const ParameterSpec& parameter) {
  return parameter.file_shape.empty() ? parameter.shape : parameter.file_shape;
}

constexpr int64_t kExportPiece = 512 << 10;  // elements
constexpr int64_t kBlock = 128;

// Calls f(first, n) for consecutive parts of at most `step` of n elements.
template <typename F>
void in_parts(int64_t n, int64_t step, F&& f) {
  for (int64_t first = 0; first < n; first += step) f(first, std::min(step, n - first));
}

TensorSource stored_source(const ExportWeights& weights, const ParameterSpec& parameter) {
  const StoredTensor& tensor = weights.compute().stored(parameter.name);
  TensorDecl decl = tensor;
  decl.name = parameter.name;
  // A run's checkpoint has the shape in memory. Codes keep that of their scales.
  if (tensor.dtype && !is_quantized(*tensor.dtype) && tensor.shape == parameter.shape)
    decl.shape = file_shape(parameter);
  return {decl, [&weights, &parameter, n = tensor.n_bytes()](const ByteSink& sink) {
            std::vector<std::byte> bytes;
            in_parts(static_cast<int64_t>(n), 4 * kExportPiece, [&](int64_t first, int64_t n_part) {
              bytes.resize(static_cast<size_t>(n_part));
              weights.compute().read_stored(parameter.name, bytes, static_cast<uint64_t>(first));
              sink(bytes);
            });
          }};
}

// Bytes that stand beside the weights, as they are.
TensorSource source_beside(const ModelFiles& files, const std::string& name,
                           const std::string& stored) {
  TensorDecl decl = files.at(stored);
  decl.name = name;
  return {decl, [&files, stored](const ByteSink& sink) { sink(files.read(stored)); }};
}

// The scales beside a stored 8-bit weight.
TensorSource stored_scales(const ExportWeights& weights, const ParameterSpec& parameter) {
  const std::string& scales = weights.compute().scales(parameter.name)->tensor.name;
  const size_t n_weight = weights.compute().stored(parameter.name).name.size();
  return source_beside(weights.compute().files(), parameter.name + scales.substr(n_weight), scales);
}

// True if the bytes of a tensor are those of a file: values and their order.
bool has_bytes_of_files(const ExportWeights& weights, const ParameterSpec& parameter) {
  const StoredTensor& stored = weights.compute().stored(parameter.name);
  const bool is_plain = stored.dtype && !is_quantized(*stored.dtype);
  const bool is_of_run = is_plain && channel_order(parameter) && stored.shape == parameter.shape;
  return !is_of_run && !weights.compute().is_folded(parameter.name);
}

// The compute copy, or with f32 the master.
TensorSource real_source(const ExportWeights& weights, const ParameterSpec& parameter,
                         Dtype dtype) {
  const StoredTensor& stored = weights.compute().stored(parameter.name);
  const bool of_masters = dtype == Dtype::f32 && weights.has_masters();
  if (stored.stored == stored_as(dtype) && !of_masters && has_bytes_of_files(weights, parameter))
    return stored_source(weights, parameter);
  return {tensor_decl(parameter.name, dtype, file_shape(parameter)),
          [&weights, &parameter, dtype, of_masters](const ByteSink& sink) {
            std::vector<float> values;
            const auto order = channel_order(parameter);
            const int64_t row = order ? order->row() : 1;  // whole rows are put in order
            const int64_t step = std::max(row, kExportPiece / row * row);
            in_parts(n_elems(parameter.shape), step, [&](int64_t first, int64_t n) {
              values.resize(static_cast<size_t>(n));
              if (of_masters) {
                weights.read_master(parameter, first, values);
              } else {
                weights.compute().read(parameter.name, first, values);
              }
              sink(encode_weights(in_file_order(parameter, values), dtype));
            });
          }};
}

// `is_trained_so`: the run's GEMMs read what is written.
Quantizer quantizer_of(const ExportWeights& weights, ExportDtype dtype, bool is_trained_so) {
  if (dtype == ExportDtype::hif8)
    return linear_quantizer(Dtype::hif8, {.kind = Granularity::Kind::tensor});
  if (dtype == ExportDtype::fp8_tensor && !is_trained_so) return {.scale_type = Dtype::bf16};
  if (dtype == ExportDtype::fp8_tensor)
    return linear_quantizer(Dtype::e4m3, {.kind = Granularity::Kind::tensor});
  const bool is_power = weights.block_scale() == BlockScale::power;
  return {.granularity = {.kind = Granularity::Kind::block, .size = kBlock},
          .rule = is_power ? ScaleRule::power_ceil : ScaleRule::linear};
}

// One linear in 8 bits: its data and its scales are two tensors, whichever is written first.
class QuantizedParameter : public MatrixQuantizer {
 public:
  QuantizedParameter(const ExportWeights& weights, const ParameterSpec& parameter,
                     ExportDtype dtype)
      : MatrixQuantizer(quantizer_of(weights, dtype, is_trained_as(weights, parameter, dtype)),
                        {parameter.shape[0], parameter.shape[1]}),
        weights_(weights),
        parameter_(parameter),
        is_trained_so_(is_trained_as(weights, parameter, dtype)) {}

  void emit_scales(const ByteSink& sink) {
    measure_once();
    sink(std::as_bytes(std::span(scales())));
  }

  void emit_data(const ByteSink& sink) {
    measure_once();
    std::vector<float> values;
    std::vector<uint8_t> data;
    in_parts(n_elems(parameter_.shape), kExportPiece, [&](int64_t first, int64_t n) {
      values.resize(static_cast<size_t>(n));
      data.resize(values.size());
      read(first, values);
      encode(first, values, data);
      sink(std::as_bytes(std::span(data)));
    });
  }

 private:
  void read(int64_t first, std::span<float> out) const {
    if (is_trained_so_) return weights_.compute().read(parameter_.name, first, out);
    weights_.read_master(parameter_, first, out);
  }

  // True if the run's forward GEMMs read it so.
  static bool is_trained_as(const ExportWeights& weights, const ParameterSpec& parameter,
                            ExportDtype dtype) {
    if (dtype == ExportDtype::fp8_tensor) return !weights.trained_sharers(parameter.name).empty();
    return dtype == ExportDtype::fp8_block && weights.trained_blocks();
  }

  // The scale of the largest magnitude among the linears that share it.
  void take_shared_scale() {
    float amax = 0;
    std::vector<float> values;
    const std::vector<std::string>& sharers = weights_.trained_sharers(parameter_.name);
    for (const ParameterSpec& one : weights_.parameters()) {
      if (std::ranges::find(sharers, one.name) == sharers.end()) continue;
      in_parts(n_elems(one.shape), kExportPiece, [&](int64_t first, int64_t n) {
        values.resize(static_cast<size_t>(n));
        weights_.compute().read(one.name, first, values);
        for (const float value : values) amax = std::max(amax, std::abs(value));
      });
    }
    MatrixQuantizer largest(quantizer(), {1, 1});
    if (largest.measure([&](int64_t, std::span<float> out) { out[0] = amax; }))
      set_scales(largest.scales());
  }

  void measure_once() {
    if (!scales().empty()) return;
    if (measure([&](int64_t first, std::span<float> out) { read(first, out); })) {
      if (is_trained_so_ && weights_.trained_sharers(parameter_.name).size() > 1 &&
          grid() == MatrixShape{1, 1})
        take_shared_scale();
      return;
    }
    throw Error(ErrorCode::bad_data, "[convert] '{}': expected finite weights, got NaN or Inf",
                parameter_.name);
  }

  const ExportWeights& weights_;
  const ParameterSpec& parameter_;
  bool is_trained_so_;
};

void add_quantized(const ExportWeights& weights, const ParameterSpec& parameter, ExportDtype dtype,
                   std::vector<TensorSource>& sources) {
  // Shared by the two sources.
  const auto weight = std::make_shared<QuantizedParameter>(weights, parameter, dtype);
  const MatrixShape grid = weight->grid();
  const bool is_block = dtype == ExportDtype::fp8_block;
  sources.push_back({tensor_decl(parameter.name, weight->quantizer().format, parameter.shape),
                     [weight](const ByteSink& sink) { weight->emit_data(sink); }});
  sources.push_back(
      {tensor_decl(parameter.name + (is_block ? "_scale_inv" : "_scale"), Dtype::f32,
                   is_block ? std::vector<int64_t>{grid.rows, grid.cols} : std::vector<int64_t>{1}),
       [weight](const ByteSink& sink) { weight->emit_scales(sink); }});
}

// Statistics of batches stay f32: divisors of all that comes behind.
Dtype real_dtype(const ExportWeights& weights, const ParameterSpec& parameter, ExportDtype dtype) {
  const SafeDtype stored = weights.compute().stored(parameter.name).stored;
  const bool keeps_f32 = dtype == ExportDtype::as_stored && stored == SafeDtype::f32;
  const bool keeps_f16 = dtype == ExportDtype::as_stored && stored == SafeDtype::f16;
  if (keeps_f16) return Dtype::fp16;
  return dtype == ExportDtype::f32 || keeps_f32 || parameter.is_statistic ? Dtype::f32
                                                                          : Dtype::bf16;
}

// True if a weight is stored as this dtype would write it.
bool is_so_stored(const ExportWeights& weights, const ParameterSpec& parameter, ExportDtype dtype) {
  const WeightReader::Scales* scales = weights.compute().scales(parameter.name);
  if (scales == nullptr || !weights.is_linear(parameter)) return false;
  const Dtype format = dtype == ExportDtype::hif8 ? Dtype::hif8 : Dtype::e4m3;
  if (weights.compute().stored(parameter.name).dtype != format) return false;
  const bool is_inverse_name = scales->tensor.name.ends_with("_scale_inv");
  if (dtype == ExportDtype::fp8_block) {
    return is_inverse_name && scales->block == BlockShape{kBlock, kBlock};
  }
  return !is_inverse_name && scales->values.size() == 1;
}

}  // namespace

ExportWeights::ExportWeights(const Files& files, const ModelSource& source)
    : parameters_(model_parameters(source.spec)),
      model_(model_def(source.spec.kind)),
      compute_(files, source.weights, source.spec, source.nonfinite) {
  const auto quantization = read_quantization_config(files, source.folder);
  if (quantization && quantization->has_power_blocks) stored_blocks_ = BlockScale::power;
  if (!source.run) return;
  if (find_recipe(source.run->recipe.base).unit_scales) {
    throw Error(ErrorCode::invalid_argument,
                "[convert] '{}': expected a run of another recipe than {}, whose models have "
                "factors that no model folder has a key for",
                source.folder, source.run->recipe.base);
  }
  const LinearFormats& formats = find_recipe(source.run->recipe.base).linears;
  if (formats.quantized && formats.w == block_format(Dtype::e4m3, "128x128"))
    trained_blocks_ = source.run->recipe.block_scale;
  if (!compute_.is_merged()) trained_sharers_ = octet::trained_sharers(*source.run, source.spec);
  masters_ = SafetensorsReader::open(
      files, join_path(parent_path(source.weights.path), "optim.safetensors"));
  open_frozen(files, source);
}

const std::vector<std::string>& ExportWeights::trained_sharers(const std::string& parameter) const {
  static const std::vector<std::string> kNone;
  const auto found = trained_sharers_.find(parameter);
  return found == trained_sharers_.end() ? kNone : found->second;
}

void ExportWeights::open_frozen(const Files& files, const ModelSource& source) {
  freeze_ = source.run->train.freeze;
  if (freeze_.empty() || source.run->model.path.empty()) return;
  try {
    frozen_.emplace(files, source.run->model.path, source.spec, source.nonfinite,
                    HeadWeights::may_be_new);
  } catch (const Error&) {
    lacks_frozen_ = true;
  }
}

// A frozen weight has no master: where its rounded values are those that the folder's round to, the
// folder's are exact.
bool ExportWeights::read_frozen(const ParameterSpec& parameter, int64_t first,
                                std::span<float> out) const {
  const StoredTensor& stored = compute_.stored(parameter.name);
  const auto matches = [&](const std::string& one) { return matches_pattern(one, parameter.name); };
  if (!frozen_ || stored.stored == SafeDtype::f32 || std::ranges::none_of(freeze_, matches) ||
      frozen_->new_parameters().contains(parameter.name))
    return false;
  std::vector<float> exact(out.size()), rounded(out.size());
  frozen_->read(parameter.name, first, exact);
  decode_values(*stored.dtype, encode_weights(exact, *stored.dtype), rounded);
  compute_.read(parameter.name, first, out);
  if (std::memcmp(rounded.data(), out.data(), out.size_bytes()) == 0)
    std::ranges::copy(exact, out.begin());
  return true;
}

void ExportWeights::read_master(const ParameterSpec& parameter, int64_t first,
                                std::span<float> out) const {
  const auto find = [&](StateUse use) {
    return masters_ ? masters_->find(state_name(use, parameter.name)) : nullptr;
  };
  if (const StoredTensor* master = find(StateUse::master); master != nullptr) {
    if (master->stored == SafeDtype::f32 && master->shape == parameter.shape) {
      masters_->read(*master, std::as_writable_bytes(out),
                     static_cast<uint64_t>(first) * sizeof(float));
      return compute_.check_finite(parameter.name, first, out);
    }
    if (master->stored == SafeDtype::f16 && master->shape == parameter.shape)
      return read_scaled(*master, parameter.name, first, out);
  }
  if (read_frozen(parameter, first, out)) return;
  compute_.read(parameter.name, first, out);
  const StoredTensor* remainder = find(StateUse::master_remainder);
  if (remainder == nullptr || remainder->stored != SafeDtype::i16) return;
  if (remainder->shape != parameter.shape ||
      compute_.stored(parameter.name).stored != SafeDtype::bf16) {
    throw Error(ErrorCode::bad_data, "[convert] {}: '{}' must be the remainders of BF16 {}, got {}",
                masters_->path(), remainder->name, to_string(parameter.shape),
                to_string(remainder->shape));
  }
  std::vector<int16_t> lo(out.size());
  masters_->read(*remainder, std::as_writable_bytes(std::span(lo)),
                 static_cast<uint64_t>(first) * sizeof(int16_t));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto hi = static_cast<uint16_t>(bits_of(out[i]) >> 16);
    out[i] = join_master({hi, lo[i]});
  }
}

// FP16 masters, and the scale that they carry (optim/optimizer.h).
void ExportWeights::read_scaled(const StoredTensor& master, const std::string& parameter,
                                int64_t first, std::span<float> out) const {
  float scale = 0;
  const StoredTensor* kept = masters_->find(state_name(StateUse::fixed_scale, parameter + ".w"));
  if (kept != nullptr) masters_->read(*kept, std::as_writable_bytes(std::span(&scale, 1)), 0);
  if (!(scale > 0)) scale = kFirstMasterScale;
  std::vector<std::byte> codes(2 * out.size());
  masters_->read(master, codes, 2 * static_cast<uint64_t>(first));
  decode_values(Dtype::fp16, codes, out);
  for (float& value : out) value *= scale;
}

bool ExportWeights::is_linear(const ParameterSpec& parameter) const {
  return octet::is_linear(parameter) && parameter.name != model_.head;
}

std::vector<TensorSource> export_tensors(const ExportWeights& weights, ExportDtype dtype) {
  const bool quantizes = is_eight_bit(dtype);
  std::vector<TensorSource> sources;
  for (const ParameterSpec& parameter : weights.parameters()) {
    const bool is_copied =
        dtype == ExportDtype::as_stored && has_bytes_of_files(weights, parameter);
    const bool is_stored = is_copied || (quantizes && is_so_stored(weights, parameter, dtype));
    const std::string packed = weights.compute().packed_name(parameter.name);
    if (is_stored && !packed.empty()) {
      const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
      sources.push_back(
          source_beside(weights.compute().files(), module + std::string(kPackedSuffix), packed));
    } else if (is_stored) {
      sources.push_back(stored_source(weights, parameter));
      if (quantizes && weights.compute().scales(parameter.name) != nullptr) {
        sources.push_back(stored_scales(weights, parameter));
      }
    } else if (quantizes && weights.is_linear(parameter)) {
      add_quantized(weights, parameter, dtype, sources);
    } else {
      sources.push_back(real_source(weights, parameter, real_dtype(weights, parameter, dtype)));
    }
  }
  if (dtype != ExportDtype::as_stored) return sources;
  const WeightReader& compute = weights.compute();
  for (const auto& [name, stored] : compute.quantization_tensors()) {
    sources.push_back(source_beside(compute.files(), name, stored));
  }
  return sources;
}

}  // namespace octet
