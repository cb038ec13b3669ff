#include "infer/matrix_quantizer.h"

#include "base/error.h"

namespace octet {
namespace {

constexpr int64_t kMeasuredPiece = 1 << 20;  // elements

}  // namespace

MatrixQuantizer::MatrixQuantizer(const Quantizer& quantizer, const MatrixShape& shape)
    : quantizer_(quantizer), shape_(shape), block_{shape.rows, shape.cols} {
  if (quantizer.granularity.kind != Granularity::Kind::tensor)
    block_ = {quantizer.granularity.size, quantizer.granularity.size};
}

bool MatrixQuantizer::measure(const Read& read) {
  std::vector<Amax> groups(static_cast<size_t>(grid().n_elems()));
  std::vector<float> values;
  const int64_t n = shape_.n_elems();
  for (int64_t first = 0; first < n; first += kMeasuredPiece) {
    values.resize(static_cast<size_t>(std::min(kMeasuredPiece, n - first)));
    read(first, values);
    for_each_scale_run(
        block_, shape_.cols, first, std::ssize(values), [&](size_t at, size_t begin, size_t end) {
          groups[at] = join(groups[at], amax(std::span(values).subspan(begin, end - begin)));
        });
  }
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
