#include "infer/export_tensors.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/named_enum.h"
#include "formats/codec.h"
#include "formats/quantize.h"
#include "infer/stored_weights.h"
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
  return {decl, [&weights, &parameter, n = tensor.n_bytes()](const ByteSink& sink) {
            std::vector<std::byte> bytes;
            in_parts(static_cast<int64_t>(n), 4 * kExportPiece, [&](int64_t first, int64_t n_part) {
              bytes.resize(static_cast<size_t>(n_part));
              weights.compute().read_stored(parameter.name, bytes, static_cast<uint64_t>(first));
              sink(bytes);
            });
          }};
}

// The scales beside a stored E4M3 weight, as f32 holds them.
TensorSource stored_scales(const ExportWeights& weights, const ParameterSpec& parameter) {
  const WeightReader::Scales& scales = *weights.compute().scales(parameter.name);
  const size_t n_weight = weights.compute().stored(parameter.name).name.size();
  TensorDecl decl = scales.tensor;
  decl.name = parameter.name + scales.tensor.name.substr(n_weight);
  const Dtype dtype = native_dtype(scales.tensor.stored).value();
  return {decl,
          [&scales, dtype](const ByteSink& sink) { sink(encode_weights(scales.values, dtype)); }};
}

// The compute copy, or with f32 the master.
TensorSource real_source(const ExportWeights& weights, const ParameterSpec& parameter,
                         Dtype dtype) {
  const StoredTensor& stored = weights.compute().stored(parameter.name);
  const bool of_masters = dtype == Dtype::f32 && weights.has_masters();
  if (stored.stored == stored_as(dtype) && !of_masters) return stored_source(weights, parameter);
  return {tensor_decl(parameter.name, dtype, file_shape(parameter)),
          [&weights, &parameter, dtype, of_masters](const ByteSink& sink) {
            std::vector<float> values;
            in_parts(n_elems(parameter.shape), kExportPiece, [&](int64_t first, int64_t n) {
              values.resize(static_cast<size_t>(n));
              if (of_masters) {
                weights.read_master(parameter, first, values);
              } else {
                weights.compute().read(parameter.name, first, values);
              }
              sink(encode_weights(values, dtype));
            });
          }};
}

// One linear in E4M3: its data and its scales are two tensors, whichever is written first.
class Fp8Weight {
 public:
  Fp8Weight(const ExportWeights& weights, const ParameterSpec& parameter, ExportDtype dtype)
      : weights_(weights), parameter_(parameter), is_block_(dtype == ExportDtype::fp8_block) {
    quantizer_ = linear_quantizer(Dtype::e4m3, {.kind = Granularity::Kind::block, .size = kBlock});
    is_trained_so_ = is_block_ && weights.trained_blocks().has_value();
    if (is_trained_so_ && *weights.trained_blocks() == BlockScale::power)
      quantizer_.rule = ScaleRule::power_ceil;
    if (!is_block_) quantizer_.granularity = {.kind = Granularity::Kind::tensor};
    if (!is_block_) quantizer_.scale_type = Dtype::bf16;
  }

  MatrixShape scale_grid() const {
    return scale_shape({parameter_.shape[0], parameter_.shape[1]}, quantizer_.granularity);
  }

  void emit_scales(const ByteSink& sink) {
    measure();
    sink(std::as_bytes(std::span(scales_)));
  }

  void emit_data(const ByteSink& sink) {
    measure();
    std::vector<uint8_t> data;
    for_each_strip([&](const MatrixShape& shape, int64_t row, std::span<const float> values) {
      data.resize(values.size());
      for (int64_t i = 0; i < shape.n_elems(); ++i) {
        const float inv_scale = 1 / scales_[scale_at(row + i / shape.cols, i % shape.cols)];
        const auto at = static_cast<size_t>(i);
        data[at] = static_cast<uint8_t>(
            encode<Dtype::e4m3>(values[at] * inv_scale, Rounding::rne, {.saturate = true}));
      }
      sink(std::as_bytes(std::span(data)));
    });
  }

 private:
  template <typename F>
  void for_each_strip(F&& f) const {
    const int64_t cols = parameter_.shape[1];
    std::vector<float> values;
    in_parts(parameter_.shape[0], kBlock, [&](int64_t row, int64_t n_rows) {
      values.resize(static_cast<size_t>(n_rows * cols));
      if (is_trained_so_) {
        weights_.compute().read(parameter_.name, row * cols, values);
      } else {
        weights_.read_master(parameter_, row * cols, values);
      }
      f(MatrixShape{n_rows, cols}, row, values);
    });
  }

  size_t scale_at(int64_t row, int64_t col) const {
    if (!is_block_) return 0;
    return static_cast<size_t>(row / kBlock * scale_grid_.cols + col / kBlock);
  }

  void measure() {
    if (!scales_.empty()) return;
    scale_grid_ = scale_grid();
    std::vector<Amax> maxima(static_cast<size_t>(scale_grid_.n_elems()));
    for_each_strip([&](const MatrixShape& shape, int64_t row, std::span<const float> values) {
      for (int64_t i = 0; i < shape.n_elems(); ++i) {
        Amax& block = maxima[scale_at(row + i / shape.cols, i % shape.cols)];
        block = join(block, amax_of(values[static_cast<size_t>(i)]));
      }
    });
    for (const Amax& block : maxima) {
      if (block.nonfinite) {
        throw Error(ErrorCode::bad_data, "[convert] '{}': expected finite weights, got NaN or Inf",
                    parameter_.name);
      }
      scales_.push_back(scale_from_amax(quantizer_, block.value));
    }
  }

  const ExportWeights& weights_;
  const ParameterSpec& parameter_;
  bool is_block_, is_trained_so_ = false;
  Quantizer quantizer_;
  MatrixShape scale_grid_;
  std::vector<float> scales_;
};

void add_fp8(const ExportWeights& weights, const ParameterSpec& parameter, ExportDtype dtype,
             std::vector<TensorSource>& sources) {
  // Shared by the two sources.
  const auto weight = std::make_shared<Fp8Weight>(weights, parameter, dtype);
  const MatrixShape grid = weight->scale_grid();
  const bool is_block = dtype == ExportDtype::fp8_block;
  sources.push_back({tensor_decl(parameter.name, Dtype::e4m3, parameter.shape),
                     [weight](const ByteSink& sink) { weight->emit_data(sink); }});
  sources.push_back(
      {tensor_decl(parameter.name + (is_block ? "_scale_inv" : "_scale"), Dtype::f32,
                   is_block ? std::vector<int64_t>{grid.rows, grid.cols} : std::vector<int64_t>{1}),
       [weight](const ByteSink& sink) { weight->emit_scales(sink); }});
}

// Bytes that stand beside the weights, as they are.
TensorSource source_beside(const ModelFiles& files, const std::string& name,
                           const std::string& stored) {
  TensorDecl decl = files.at(stored);
  decl.name = name;
  return {decl, [&files, stored](const ByteSink& sink) { sink(files.read(stored)); }};
}

// Whether a weight is stored as this dtype would write it.
bool is_so_stored(const ExportWeights& weights, const ParameterSpec& parameter, ExportDtype dtype) {
  const WeightReader::Scales* scales = weights.compute().scales(parameter.name);
  if (scales == nullptr) return false;
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
  if (!source.run) return;
  const LinearFormats& formats = find_recipe(source.run->recipe.base).linears;
  if (formats.quantized && formats.w == block_format(Dtype::e4m3, "128x128"))
    trained_blocks_ = source.run->recipe.block_scale;
  masters_ =
      SafetensorsReader::open(files, join_path(parent_path(source.weights), "optim.safetensors"));
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
  std::vector<uint16_t> codes(out.size());
  masters_->read(master, std::as_writable_bytes(std::span(codes)),
                 static_cast<uint64_t>(first) * sizeof(uint16_t));
  for (size_t i = 0; i < out.size(); ++i) out[i] = decode(Dtype::fp16, codes[i]) * scale;
}

bool ExportWeights::is_linear(const ParameterSpec& parameter) const {
  return parameter.shape.size() == 2 && parameter.decay && parameter.name != model_.head;
}

std::vector<TensorSource> export_tensors(const ExportWeights& weights, ExportDtype dtype) {
  const bool is_fp8 = dtype == ExportDtype::fp8_block || dtype == ExportDtype::fp8_tensor;
  std::vector<TensorSource> sources;
  for (const ParameterSpec& parameter : weights.parameters()) {
    const bool is_stored =
        dtype == ExportDtype::as_stored || (is_fp8 && is_so_stored(weights, parameter, dtype));
    const std::string packed = weights.compute().packed_name(parameter.name);
    if (is_stored && !packed.empty()) {
      const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
      sources.push_back(
          source_beside(weights.compute().files(), module + std::string(kPackedSuffix), packed));
    } else if (is_stored) {
      sources.push_back(stored_source(weights, parameter));
      if (is_fp8 && weights.compute().scales(parameter.name) != nullptr) {
        sources.push_back(stored_scales(weights, parameter));
      }
    } else if (is_fp8 && weights.is_linear(parameter)) {
      add_fp8(weights, parameter, dtype, sources);
    } else {
      const Dtype real = dtype == ExportDtype::f32 ? Dtype::f32 : Dtype::bf16;
      sources.push_back(real_source(weights, parameter, real));
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
