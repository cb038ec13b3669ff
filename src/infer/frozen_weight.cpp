#include "infer/frozen_weight.h"

#include "base/error.h"

namespace octet {
namespace {

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
