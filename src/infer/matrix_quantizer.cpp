#include "infer/matrix_quantizer.h"

#include <memory>

#include "base/error.h"

namespace octet {

MatrixQuantizer::MatrixQuantizer(const Quantizer& quantizer, const MatrixShape& shape)
    : quantizer_(quantizer), shape_(shape), block_{shape.rows, shape.cols} {
  if (quantizer.granularity.kind != Granularity::Kind::tensor)
    block_ = {quantizer.granularity.size, quantizer.granularity.size};
}

bool MatrixQuantizer::measure(const ReadValues& read) {
  std::vector<Amax> groups(static_cast<size_t>(grid().n_elems()));
  stream_values(shape_.n_elems(), read, [&](int64_t first, std::span<const float> values) {
    for_each_scale_run(block_, shape_.cols, first, std::ssize(values),
                       [&](size_t at, size_t begin, size_t end) {
                         groups[at] = join(groups[at], amax(values.subspan(begin, end - begin)));
                       });
  });
  if (std::ranges::any_of(groups, &Amax::nonfinite)) return false;
  for (const Amax& group : groups) scales_.push_back(scale_from_amax(quantizer_, group.value));
  return true;
}

void MatrixQuantizer::encode(int64_t first, std::span<const float> values,
                             std::span<uint8_t> data) const {
  CHECK(values.size() == data.size());
  visit_format(quantizer_.format, [&]<Dtype D>() {
    for_each_scale_run(block_, shape_.cols, first, std::ssize(values),
                       [&](size_t at, size_t begin, size_t end) {
                         const float inv_scale = 1.0f / scales_[at];
                         for (size_t i = begin; i < end; ++i)
                           data[i] = static_cast<uint8_t>(octet::encode<D>(values[i] * inv_scale));
                       });
  });
}

void MatrixQuantizer::round(int64_t first, std::span<float> values) const {
  visit_format(quantizer_.format, [&]<Dtype D>() {
    for_each_scale_run(block_, shape_.cols, first, std::ssize(values),
                       [&](size_t at, size_t begin, size_t end) {
                         const float scale = scales_[at], inv_scale = 1.0f / scale;
                         for (float& value : values.subspan(begin, end - begin))
                           value = decode<D>(octet::encode<D>(value * inv_scale)) * scale;
                       });
  });
}

namespace {

class QuantizedTensors {
 public:
  QuantizedTensors(MatrixQuantizer quantizer, ReadValues read, std::string name,
                   ScaleOverride rescale)
      : quantizer_(std::move(quantizer)),
        read_(std::move(read)),
        name_(std::move(name)),
        rescale_(std::move(rescale)) {}

  void emit_data(const ByteSink& sink) {
    measure_once();
    std::vector<uint8_t> data;
    stream_values(quantizer_.shape().n_elems(), read_,
                  [&](int64_t first, std::span<const float> values) {
                    data.resize(values.size());
                    quantizer_.encode(first, values, data);
                    sink(std::as_bytes(std::span(data)));
                  });
  }

  void emit_scales(Dtype dtype, const ByteSink& sink) {
    measure_once();
    sink(encode_weights(quantizer_.scales(), dtype));
  }

 private:
  void measure_once() {
    if (!quantizer_.scales().empty()) return;
    if (!quantizer_.measure(read_)) {
      throw Error(ErrorCode::bad_data, "[convert] '{}': expected finite weights, got NaN or Inf",
                  name_);
    }
    if (rescale_) rescale_(quantizer_);
  }

  MatrixQuantizer quantizer_;
  ReadValues read_;
  std::string name_;
  ScaleOverride rescale_;
};

}  // namespace

std::vector<TensorSource> quantized(MatrixQuantizer quantizer, ReadValues read, TensorDecl data,
                                    TensorDecl scales, ScaleOverride rescale) {
  const auto both = std::make_shared<QuantizedTensors>(std::move(quantizer), std::move(read),
                                                       data.name, std::move(rescale));
  const Dtype dtype = native_dtype(scales.stored).value();
  return {
      {std::move(data), [both](const ByteSink& sink) { both->emit_data(sink); }},
      {std::move(scales), [both, dtype](const ByteSink& sink) { both->emit_scales(dtype, sink); }}};
}

namespace {

Quantizer quantizer_of(FrozenFormat format) {
  const bool in_blocks = format == FrozenFormat::e4m3_blocks;
  const Granularity granularity = {in_blocks ? Granularity::Kind::block : Granularity::Kind::tensor,
                                   in_blocks ? kFrozenBlock : 0};
  Quantizer quantizer = linear_quantizer(frozen_dtype(format), granularity);
  if (in_blocks) quantizer.scale_type = Dtype::bf16;
  return quantizer;
}

// Scale of data that are stored in this format with one scale.
const WeightReader::Scales* stored_scale(const WeightReader& base, const std::string& parameter,
                                         const Quantizer& quantizer) {
  const WeightReader::Scales* scales = base.scales(parameter);
  const bool fits = scales != nullptr && scales->values.size() == 1 &&
                    quantizer.granularity.kind == Granularity::Kind::tensor &&
                    base.stored(parameter).dtype == quantizer.format;
  return fits ? scales : nullptr;
}

}  // namespace

FrozenWeight::FrozenWeight(const WeightReader& base, const std::string& parameter,
                           const Shape& shape, FrozenFormat format)
    : MatrixQuantizer(quantizer_of(format), {shape.at(0), shape.at(1)}) {
  if (const auto* stored = stored_scale(base, parameter, quantizer())) {
    set_scales(stored->values);
    return;
  }
  if (!measure([&](int64_t first, std::span<float> out) { base.read(parameter, first, out); })) {
    throw Error(ErrorCode::bad_data, "[weights] '{}': expected finite weights, got NaN or Inf",
                parameter);
  }
}

}  // namespace octet
