#include "infer/export_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/named_enum.h"
#include "formats/arrays.h"
#include "formats/codec.h"
#include "infer/matrix_quantizer.h"
#include "infer/trained_scales.h"
#include "infer/weight_layouts.h"
#include "ir/fixed_scale.h"
#include "ir/states.h"
#include "math/master.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

Shape file_shape(const ParameterSpec& parameter) {
  return parameter.file_shape.empty() ? parameter.shape : parameter.file_shape;
}

constexpr int64_t kBlock = 128;

TensorSource stored_source(const ExportWeights& weights, const ParameterSpec& parameter) {
  const StoredTensor& tensor = weights.compute().stored(parameter.name);
  TensorDecl decl = tensor;
  decl.name = parameter.name;
  // A run's checkpoint has the shape in memory. Codes keep that of their scales.
  if (tensor.dtype && !is_quantized(*tensor.dtype) && tensor.shape == parameter.shape)
    decl.shape = file_shape(parameter);
  return copied(decl, [&weights, &parameter](std::span<std::byte> out, uint64_t first) {
    weights.compute().read_stored(parameter.name, out, first);
  });
}

// The scales beside a stored 8-bit weight.
TensorSource stored_scales(const ExportWeights& weights, const ParameterSpec& parameter) {
  const std::string& scales = weights.compute().scales(parameter.name)->tensor.name;
  const size_t n_weight = weights.compute().stored(parameter.name).name.size();
  return copied(weights.compute().files(), scales, parameter.name + scales.substr(n_weight));
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
  const WeightValues copy = of_masters ? WeightValues::master : WeightValues::computed;
  return rounded(tensor_decl(parameter.name, dtype, file_shape(parameter)),
                 in_file_order(parameter, weights.values(parameter, copy, dtype)));
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

// True: what is written is what the run's forward GEMMs read.
bool is_trained_as(const ExportWeights& weights, const ParameterSpec& parameter,
                   ExportDtype dtype) {
  if (dtype == ExportDtype::fp8_tensor) return !weights.trained_sharers(parameter.name).empty();
  return dtype == ExportDtype::fp8_block && weights.trained_blocks();
}

// The scale of the largest magnitude among the linears that share it.
void take_shared_scale(const ExportWeights& weights, const std::vector<std::string>& sharers,
                       MatrixQuantizer& quantizer) {
  float amax = 0;
  for (const ParameterSpec& one : weights.parameters()) {
    if (std::ranges::find(sharers, one.name) == sharers.end()) continue;
    stream_values(n_elems(one.shape), weights.values(one, WeightValues::computed),
                  [&](int64_t, std::span<const float> values) {
                    for (const float value : values) amax = std::max(amax, std::abs(value));
                  });
  }
  MatrixQuantizer largest(quantizer.quantizer(), {1, 1});
  if (largest.measure([&](int64_t, std::span<float> out) { out[0] = amax; }))
    quantizer.set_scales(largest.scales());
}

// One linear in 8 bits.
std::vector<TensorSource> quantized_sources(const ExportWeights& weights,
                                            const ParameterSpec& parameter, ExportDtype dtype) {
  const bool is_trained_so = is_trained_as(weights, parameter, dtype);
  MatrixQuantizer quantizer(quantizer_of(weights, dtype, is_trained_so),
                            {parameter.shape[0], parameter.shape[1]});
  const MatrixShape grid = quantizer.grid();
  const bool is_block = dtype == ExportDtype::fp8_block;
  ScaleOverride rescale;
  const std::vector<std::string>& sharers = weights.trained_sharers(parameter.name);
  if (is_trained_so && sharers.size() > 1 && grid == MatrixShape{1, 1}) {
    rescale = [&weights, &sharers](MatrixQuantizer& of) {
      take_shared_scale(weights, sharers, of);
    };
  }
  TensorDecl data = tensor_decl(parameter.name, quantizer.quantizer().format, parameter.shape);
  return quantized(
      std::move(quantizer),
      weights.values(parameter, is_trained_so ? WeightValues::computed : WeightValues::master),
      std::move(data),
      tensor_decl(parameter.name + (is_block ? "_scale_inv" : "_scale"), Dtype::f32,
                  is_block ? std::vector<int64_t>{grid.rows, grid.cols} : std::vector<int64_t>{1}),
      rescale);
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

ExportWeights::ExportWeights(const ModelSpec& spec, WeightReader weights)
    : parameters_(model_parameters(spec)),
      model_(model_def(spec.kind)),
      compute_(std::move(weights)) {}

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

ReadValues ExportWeights::values(const ParameterSpec& parameter, WeightValues copy,
                                 Dtype dtype) const {
  if (copy == WeightValues::master) {
    return [this, &parameter](int64_t first, std::span<float> out) {
      read_master(parameter, first, out);
    };
  }
  return [this, &parameter, dtype](int64_t first, std::span<float> out) {
    compute_.read(parameter.name, first, out);
    if (dtype != Dtype::f32) compute_.check_finite(parameter.name, first, out, dtype);
  };
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
          copied(weights.compute().files(), packed, module + std::string(kPackedSuffix)));
    } else if (is_stored) {
      sources.push_back(stored_source(weights, parameter));
      if (quantizes && weights.compute().scales(parameter.name) != nullptr) {
        sources.push_back(stored_scales(weights, parameter));
      }
    } else if (quantizes && weights.is_linear(parameter)) {
      std::ranges::move(quantized_sources(weights, parameter, dtype), std::back_inserter(sources));
    } else {
      sources.push_back(real_source(weights, parameter, real_dtype(weights, parameter, dtype)));
    }
  }
  if (dtype != ExportDtype::as_stored) return sources;
  const WeightReader& compute = weights.compute();
  for (const auto& [name, stored] : compute.quantization_tensors()) {
    sources.push_back(copied(compute.files(), stored, name));
  }
  return sources;
}

}  // namespace octet
