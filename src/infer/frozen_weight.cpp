#include "infer/frozen_weight.h"

#include <algorithm>

#include "base/error.h"
#include "formats/codec.h"

namespace octet {
namespace {

constexpr int64_t kDecodedPiece = 1 << 20;

Quantizer quantizer_of(FrozenFormat format) {
  const bool in_blocks = format == FrozenFormat::e4m3_blocks;
  const Granularity granularity = {in_blocks ? Granularity::Kind::block : Granularity::Kind::tensor,
                                   in_blocks ? kFrozenBlock : 0};
  Quantizer quantizer = linear_quantizer(frozen_dtype(format), granularity);
  if (in_blocks) quantizer.scale_type = Dtype::bf16;
  return quantizer;
}

// Of data that are stored in this format with one scale.
const WeightReader::Scales* stored_scale(const WeightReader& base, const std::string& parameter,
                                         const Quantizer& quantizer) {
  const WeightReader::Scales* scales = base.scales(parameter);
  const bool fits = scales != nullptr && scales->values.size() == 1 &&
                    quantizer.granularity.kind == Granularity::Kind::tensor &&
                    native_dtype(base.stored(parameter).stored) == quantizer.format;
  return fits ? scales : nullptr;
}

}  // namespace

// Calls f(scale index, begin, end) for runs of elements under one scale, counted from `first`.
template <typename F>
void FrozenWeight::for_each_run(int64_t first, int64_t n, F&& f) const {
  if (quantizer_.granularity.kind == Granularity::Kind::tensor) return f(0, 0, n);
  const int64_t block = quantizer_.granularity.size;
  for (int64_t i = 0; i < n;) {
    const int64_t row = (first + i) / shape_.cols, col = (first + i) % shape_.cols;
    const int64_t end = std::min(n, i + std::min(block - col % block, shape_.cols - col));
    f(row / block * grid_.cols + col / block, i, end);
    i = end;
  }
}

FrozenWeight::FrozenWeight(const WeightReader& base, const std::string& parameter,
                           const Shape& shape, FrozenFormat format)
    : quantizer_(quantizer_of(format)),
      shape_{shape.at(0), shape.at(1)},
      grid_(scale_shape(shape_, quantizer_.granularity)) {
  if (const auto* stored = stored_scale(base, parameter, quantizer_)) {
    scales_ = stored->values;
    return;
  }
  std::vector<Amax> groups(static_cast<size_t>(grid_.n_elems()));
  std::vector<float> values;
  for (int64_t first = 0; first < shape_.n_elems(); first += kDecodedPiece) {
    values.resize(static_cast<size_t>(std::min(kDecodedPiece, shape_.n_elems() - first)));
    base.read(parameter, first, values);
    for_each_run(first, std::ssize(values), [&](int64_t group, int64_t begin, int64_t end) {
      Amax& so_far = groups[static_cast<size_t>(group)];
      so_far = join(so_far, amax(std::span(values).subspan(static_cast<size_t>(begin),
                                                           static_cast<size_t>(end - begin))));
    });
  }
  for (const Amax& group : groups) {
    if (group.nonfinite) {
      throw Error(ErrorCode::bad_data, "[weights] '{}': expected finite weights, got NaN or Inf",
                  parameter);
    }
    scales_.push_back(scale_from_amax(quantizer_, group.value));
  }
}

void FrozenWeight::encode(int64_t first, std::span<const float> values,
                          std::span<uint8_t> data) const {
  CHECK(values.size() == data.size());
  visit_format(quantizer_.format, [&]<Dtype D>() {
    for_each_run(first, std::ssize(values), [&](int64_t group, int64_t begin, int64_t end) {
      const float inv_scale = 1.0f / scales_[static_cast<size_t>(group)];
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        data[at] = static_cast<uint8_t>(octet::encode<D>(values[at] * inv_scale));
      }
    });
  });
}

void FrozenWeight::round(int64_t first, std::span<float> values) const {
  visit_format(quantizer_.format, [&]<Dtype D>() {
    for_each_run(first, std::ssize(values), [&](int64_t group, int64_t begin, int64_t end) {
      const float scale = scales_[static_cast<size_t>(group)], inv_scale = 1.0f / scale;
      for (int64_t i = begin; i < end; ++i) {
        float& value = values[static_cast<size_t>(i)];
        value = decode<D>(octet::encode<D>(value * inv_scale)) * scale;
      }
    });
  });
}

}  // namespace octet
