// The number formats as rows of one table: a format is added by one row here. Everything else
// (codec.h, quantize.h, math/expansion.h, the bulk codecs, `octet formats`) is derived from its
// row.
//
// Sources: Micikevicius et al. 2022 (E4M3, E5M2), Luo et al. 2024 (HiF8), OCP MX 1.0 (E8M0),
// Dettmers 2016 and 2021 (DE8, "dynamic tree"). Layouts and numbers: docs/numerics.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/host_device.h"
#include "formats/dtype.h"

namespace octet {

enum class Rounding : uint8_t {
  rne,   // nearest, ties to the even code
  ta,    // nearest, ties away from zero
  rtz,   // toward zero
  sr,    // stochastic, 32 random bits given by the caller
  hr,    // HiF8's hybrid of ta and simplified stochastic rounding; exact values never move
  hrv,   // hr to the letter of its paper: exact values may move
  near,  // the format's own nearest rounding (FormatRow::nearest); of DE8, ties to the larger entry
  floor,  // E8M0: largest power of two that is not larger
  ceil,   // E8M0: smallest power of two that is not smaller
};
inline constexpr std::array<std::string_view, 9> kRoundingNames = {
    "rne", "ta", "rtz", "sr", "hr", "hrv", "near", "floor", "ceil"};

constexpr std::string_view rounding_name(Rounding rounding) {
  return kRoundingNames[static_cast<size_t>(rounding)];
}

// The rounding with this name ("nearest" is accepted for near), or nothing.
constexpr std::optional<Rounding> rounding_from_name(std::string_view name) {
  if (name == "nearest") return Rounding::near;
  for (size_t i = 0; i < kRoundingNames.size(); ++i) {
    if (kRoundingNames[i] == name) return static_cast<Rounding>(i);
  }
  return std::nullopt;
}

// How a group's amax becomes its scale.
enum class ScaleRule : uint8_t {
  linear,      // amax * f32(1 / amax_target)
  power_ceil,  // smallest power of two with amax / scale <= amax_target (HiF8's per-tensor scaling;
               // MX RCEIL)
  mx_floor,    // 2^(floor(log2 amax) - floor(log2 amax_target)): OCP MX, which may clip
};

// How the bits of a code give its value.
enum class DecodeRule : uint8_t {
  ieee,  // sign, biased exponent, fraction; exponent 0 is subnormal
  hif8,  // sign, prefix ("dot") of 2 to 4 bits, sign and magnitude of the exponent, 1 to 3 fraction
         // bits
  power,    // 2^(code - bias)
  dynamic,  // index into a sorted codebook of decades, each cut in twice as many cells as the one
            // below
  integer,  // two's complement; the least of them is decoded, and never encoded
};

struct FormatRow {
  Dtype dtype;
  DecodeRule rule;
  int exponent_bits;  // 0 where the width varies
  int fraction_bits;  // the most that a code has
  int bias;
  bool is_signed;
  bool has_inf;        // then overflow_code is Inf; otherwise overflow gives NaN with the sign kept
  uint16_t max_code;   // largest finite value
  uint16_t min_code;   // smallest positive value
  uint16_t zero_code;  // +0 (of E8M0, which has no zero: its smallest value)
  uint16_t overflow_code;  // what an overflow gives without saturation
  uint16_t nan_code;       // canonical NaN (of DE8, which has none: zero)
  Rounding nearest;
  float amax_target;           // a quantizer maps amax to this value
  float gradient_amax_target;  // the same for heavy-tailed gradients
  double expansion_ratio_m;    // R_fmt of dynamic range expansion, first moment; 0: no expansion
  double expansion_ratio_v;    // second moment
  bool exact_in_bf16;          // every finite value is one of BF16's
  bool tensor_cores;           // a GPU's matrix units read it as it is
  Dtype second_moment;  // of Adam, where the first one has this format; real: it is none of its own
};

// HiF8's targets are not its largest value: 3-bit fractions end at 15, and amax at 2^15 would cost
// 12 dB. DE8's ratios are those of its largest (1.0) to its smallest positive entry. INT8 is
// symmetric and has neither NaN nor overflow: they give zero and the largest value.
// clang-format off
inline constexpr FormatRow kFormats[] = {
    {Dtype::e4m3, DecodeRule::ieee, 4, 3, 7, true, false, 0x7E, 0x01, 0x00, 0x7F, 0x7F,
     Rounding::rne, 448.0f, 448.0f, 448.0 * 0x1p9, 448.0 * 0x1p9,
     true, true, Dtype::e4m3},
    {Dtype::e5m2, DecodeRule::ieee, 5, 2, 15, true, true, 0x7B, 0x01, 0x00, 0x7C, 0x7F,
     Rounding::rne, 57344.0f, 57344.0f, 57344.0 * 0x1p16, 57344.0 * 0x1p16,
     true, true, Dtype::e5m2},
    {Dtype::hif8, DecodeRule::hif8, 0, 3, 0, true, true, 0x6E, 0x01, 0x00, 0x6F, 0x80,
     Rounding::ta, 15.0f, 224.0f, 0x1p18, 0x1p11,
     true, false, Dtype::hif8},
    {Dtype::bf16, DecodeRule::ieee, 8, 7, 127, true, true, 0x7F7F, 0x0001, 0x0000, 0x7F80, 0x7FFF,
     Rounding::rne, 0x1.FEp127f, 0x1.FEp127f, 0.0, 0.0,
     true, true, Dtype::bf16},
    {Dtype::fp16, DecodeRule::ieee, 5, 10, 15, true, true, 0x7BFF, 0x0001, 0x0000, 0x7C00, 0x7FFF,
     Rounding::rne, 65504.0f, 65504.0f, 0.0, 0.0,
     false, true, Dtype::real},
    {Dtype::e8m0, DecodeRule::power, 8, 0, 127, false, false, 0xFE, 0x00, 0x00, 0xFE, 0xFF,
     Rounding::ceil, 0x1p127f, 0x1p127f, 0.0, 0.0,
     true, false, Dtype::real},
    {Dtype::de8s, DecodeRule::dynamic, 0, 0, 0, true, false, 0xFF, 0x80, 0x7F, 0xFF, 0x7F,
     Rounding::near, 1.0f, 1.0f, 1.0 / 5.5e-7f, 1.0 / 5.5e-7f,
     false, false, Dtype::de8u},
    {Dtype::de8u, DecodeRule::dynamic, 0, 0, 0, false, false, 0xFF, 0x01, 0x00, 0xFF, 0x00,
     Rounding::near, 1.0f, 1.0f, 1.0 / 3.25e-7f, 1.0 / 3.25e-7f,
     false, false, Dtype::real},
    {Dtype::int8, DecodeRule::integer, 0, 7, 0, true, false, 0x7F, 0x01, 0x00, 0x7F, 0x00,
     Rounding::rne, 127.0f, 127.0f, 0.0, 0.0,
     true, false, Dtype::real},
};
// clang-format on
inline constexpr int kFormatCount = sizeof(kFormats) / sizeof(kFormats[0]);

constexpr bool is_format(Dtype dtype) {
  for (const FormatRow& row : kFormats) {
    if (row.dtype == dtype) return true;
  }
  return false;
}

// The row of a format; meant for constant expressions: with a dtype that is no format it does not
// compile there.
constexpr FormatRow format_row(Dtype dtype) {
  for (const FormatRow& row : kFormats) {
    if (row.dtype == dtype) return row;
  }
  throw "no such number format";
}
// The row of a format known at compile time: what kernels read, which may not call the function.
template <Dtype D>
inline constexpr FormatRow kFormatRow = format_row(D);

// Quantized data that a GEMM reads: it may decode it to BF16, which is then exact. INT8 is a
// format of post-training quantization alone, and is dequantized before.
constexpr bool is_gemm_operand(Dtype dtype) {
  return is_format(dtype) && is_quantized(dtype) && format_row(dtype).is_signed &&
         format_row(dtype).exact_in_bf16 && format_row(dtype).rule != DecodeRule::integer;
}
// Quantized data that a GPU multiplies as it is.
constexpr bool is_fp8(Dtype dtype) {
  return is_gemm_operand(dtype) && format_row(dtype).tensor_cores;
}
// Quantized data with encoders and decoders in bulk: all but E8M0's, which are scales.
constexpr bool has_codec(Dtype dtype) {
  return is_format(dtype) && is_quantized(dtype) && format_row(dtype).rule != DecodeRule::power;
}
// Quantized data that one of Adam's moments may be kept in.
constexpr bool is_moment_format(Dtype dtype) {
  for (const FormatRow& row : kFormats) {
    const bool is_either = row.dtype == dtype || row.second_moment == dtype;
    if (is_either && row.second_moment != Dtype::real) return is_quantized(dtype);
  }
  return false;
}
// f32_or_bf16: what has f32's range and needs no scale. High precision: FP16 too, all that needs
// none.
OCTET_HOST_DEVICE constexpr bool is_f32_or_bf16(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16;
}
OCTET_HOST_DEVICE constexpr bool is_high_precision(Dtype dtype) {
  return is_f32_or_bf16(dtype) || dtype == Dtype::fp16;
}

constexpr bool rounding_supported(Dtype dtype, Rounding rounding) {
  if (!is_format(dtype)) return false;
  const bool common = rounding == Rounding::ta || rounding == Rounding::rtz ||
                      rounding == Rounding::sr || rounding == Rounding::near;
  switch (format_row(dtype).rule) {
    case DecodeRule::ieee:
      return common || rounding == Rounding::rne;
    case DecodeRule::hif8:
      return common || rounding == Rounding::rne || rounding == Rounding::hr ||
             rounding == Rounding::hrv;
    case DecodeRule::power:
      return rounding == Rounding::floor || rounding == Rounding::ceil;
    case DecodeRule::dynamic:
      return rounding == Rounding::near;
    case DecodeRule::integer:
      return common || rounding == Rounding::rne;
  }
  return false;
}

}  // namespace octet
