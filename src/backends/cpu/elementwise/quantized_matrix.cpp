#include "backends/cpu/elementwise/quantized_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/elementwise/fused_spans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/quantized_matrix.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/elementwise/normalize-inl.h"
#include "backends/cpu/elementwise/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

void ConvertSpan(In x, int64_t n, Out y) {
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR { store(io, load(io, x, i), y, i); });
}

void AddSpan(const SumSpan& a, int64_t n) {
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR {
    const VF sum = hn::Add(load(io, a.a, i), load(io, a.b, i));
    store(io, sum, a.sum, i);
    io.store(sum, a.y + i);
  });
}

void NormalizeRow(const NormalizeSpan& a, int64_t n) {
  const NormLanes row = norm_lanes(a.mean, a.rstd);
  for_lanes(0, n, [row, a](int64_t i, auto io) HWY_ATTR {
    io.store(row.result(load(io, a.x, i), a.weight, a.bias, i, io), a.y + i);
  });
}

float SignedAmax(In x, int64_t n) {
  MagnitudeLanes lanes{hn::Zero(I32())};
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR { lanes.add(load(io, x, i)); });
  if (lanes.all_finite()) return max_of(lanes.value());
  VF top = zero(), sum = zero();
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR {
    const VF v = load(io, x, i);
    top = hn::Max(top, finite_magnitude(v));
    // 0 * v is 0 where v is finite, NaN elsewhere.
    sum = hn::Add(sum, hn::Mul(v, zero()));
  });
  const float value = max_of(top);
  return hn::AllFalse(F32(), hn::IsNaN(sum)) ? value : -value;
}

void GroupAmax(const float* x, int64_t n, int64_t group, float* amax) {
  for (int64_t begin = 0; begin < n; begin += group) {
    VF top = zero();
    for_lanes(begin, std::min(n, begin + group), [&](int64_t i, auto io) HWY_ATTR {
      top = hn::Max(top, finite_magnitude(io.load(x + i)));
    });
    *amax++ = max_of(top);
  }
}

void GroupScales(float* amax, int64_t n, float inv_target, uint16_t* scales) {
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR {
    const VF scale = group_scale(io.load(amax + i), inv_target);
    io.store(scale, scales + i);
    io.store(hn::Div(set(1.0f), scale), amax + i);
  });
}

void ScaleGroups(float* x, int64_t n, int64_t group, const float* factors) {
  for (int64_t begin = 0; begin < n; begin += group) {
    const VF factor = set(*factors++);
    for_lanes(begin, std::min(n, begin + group), [&](int64_t i, auto io) HWY_ATTR {
      io.store(hn::Mul(io.load(x + i), factor), x + i);
    });
  }
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void transpose_16(const uint8_t* from, int64_t stride, uint8_t* to) {
  for (int64_t r = 0; r < 16; ++r) {
    for (int64_t c = 0; c < 16; ++c) to[c * kPanelRows + r] = from[r * stride + c];
  }
}

#else

using B16 = hn::FixedTag<uint8_t, 16>;
using VB = hn::Vec<B16>;

// Interleaving the first half of the rows with the second, four times over, transposes them.
HWY_INLINE void interleave_halves(const VB (&from)[16], VB (&to)[16]) {
  const B16 d;
  HWY_UNROLL(8) for (int i = 0; i < 8; ++i) {
    to[2 * i] = hn::InterleaveLower(d, from[i], from[i + 8]);
    to[2 * i + 1] = hn::InterleaveUpper(d, from[i], from[i + 8]);
  }
}

HWY_INLINE void transpose_16(const uint8_t* from, int64_t stride, uint8_t* to) {
  const B16 d;
  VB a[16], b[16];
  HWY_UNROLL(16) for (int r = 0; r < 16; ++r) a[r] = hn::LoadU(d, from + r * stride);
  interleave_halves(a, b);
  interleave_halves(b, a);
  interleave_halves(a, b);
  interleave_halves(b, a);
  HWY_UNROLL(16) for (int c = 0; c < 16; ++c) hn::StoreU(a[c], d, to + c * kPanelRows);
}

#endif

void TransposeCodes(const CodePanel& p, int64_t n_rows, int64_t n_cols) {
  HWY_ALIGN uint8_t tile[16 * kPanelRows];
  for (int64_t c = 0; c < n_cols; c += 16) {
    for (int64_t r = 0; r < kPanelRows; r += 16) {
      transpose_16(p.block + r * p.stride + c, p.stride, tile + r);
    }
    for (int64_t j = 0; j < std::min<int64_t>(16, n_cols - c); ++j) {
      uint8_t* const out = p.out + (c + j) * p.out_stride;
      if (n_rows == kPanelRows) {
        std::memcpy(out, tile + j * kPanelRows, static_cast<size_t>(kPanelRows));
      } else {
        std::memcpy(out, tile + j * kPanelRows, static_cast<size_t>(n_rows));
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(ConvertSpan);
HWY_EXPORT(AddSpan);
HWY_EXPORT(NormalizeRow);
HWY_EXPORT(SignedAmax);
HWY_EXPORT(GroupAmax);
HWY_EXPORT(GroupScales);
HWY_EXPORT(ScaleGroups);
HWY_EXPORT(TransposeCodes);

void convert_span(In x, int64_t n, Out y) {
  HWY_DYNAMIC_DISPATCH(ConvertSpan)(x, n, y);
}
void add_span(const SumSpan& args, int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddSpan)(args, n);
}
void normalize_span(const NormalizeSpan& args, int64_t n) {
  HWY_DYNAMIC_DISPATCH(NormalizeRow)(args, n);
}
float signed_amax(In x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SignedAmax)(x, n);
}
void group_amax(const float* x, int64_t n, int64_t group, float* amax) {
  HWY_DYNAMIC_DISPATCH(GroupAmax)(x, n, group, amax);
}
void group_scales(float* amax, int64_t n_groups, float target, uint16_t* scales) {
  HWY_DYNAMIC_DISPATCH(GroupScales)(amax, n_groups, 1.0f / target, scales);
}
void scale_groups(float* x, int64_t n, int64_t group, const float* factors) {
  HWY_DYNAMIC_DISPATCH(ScaleGroups)(x, n, group, factors);
}
void transpose_codes(const CodePanel& panel, int64_t n_rows, int64_t n_cols) {
  HWY_DYNAMIC_DISPATCH(TransposeCodes)(panel, n_rows, n_cols);
}

namespace {

void encode_all(const Codec& codec, In x, int64_t n, float inv_scale, uint8_t* codes) {
  if (x.dtype == Dtype::bf16) {
    codec.encode_bf16(static_cast<const uint16_t*>(x.data), static_cast<size_t>(n), inv_scale,
                      codes);
  } else {
    codec.encode_f32(static_cast<const float*>(x.data), static_cast<size_t>(n), inv_scale, codes);
  }
}

}  // namespace

void encode_span(const Codec& codec, In x, int64_t n, const EncodeScale& scale, uint8_t* codes) {
  const auto [inv_scale, limit] = scale;
  const float amax = limit > 0 ? signed_amax(x, n) : 0.0f;
  if (!std::signbit(amax) && amax * inv_scale <= limit)
    return encode_all(codec, x, n, inv_scale, codes);
  constexpr int64_t kPart = 256;
  float values[kPart];
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t n_part = std::min(kPart, n - i);
    convert_span(offset(x, i), n_part, {values, Dtype::f32});
    for (int64_t j = 0; j < n_part; ++j) {
      values[j] *= inv_scale;
      if (!(std::abs(values[j]) <= limit)) values[j] = std::numeric_limits<float>::quiet_NaN();
    }
    codec.encode_f32(values, static_cast<size_t>(n_part), 1.0f, codes + i);
  }
}

In read_span(const QuantizedMatrix& matrix, const RowSpan& span, float* buffer) {
  const int64_t at = span.row * span.cols + span.col;
  if (matrix.group == 0) return offset(matrix.x, at);
  if (fused_read(matrix, span, buffer)) return {buffer, Dtype::f32};
  constexpr int64_t kFactors = 256;
  float factors[kFactors];
  const int64_t groups_per_row = ceil_div(span.cols, matrix.group);
  const int64_t first = span.row * groups_per_row + span.col / matrix.group;
  const int64_t n_groups = ceil_div(span.n, matrix.group);
  simd_codec(matrix.x.dtype)
      .decode_f32(static_cast<const uint8_t*>(matrix.x.data) + at, static_cast<size_t>(span.n),
                  1.0f, buffer);
  for (int64_t g = 0; g < n_groups; g += kFactors) {
    const int64_t n = std::min(kFactors, n_groups - g);
    convert_span(offset(matrix.scales, first + g), n, {factors, Dtype::f32});
    const int64_t begin = g * matrix.group;
    scale_groups(buffer + begin, std::min(span.n - begin, n * matrix.group), matrix.group, factors);
  }
  return {buffer, Dtype::f32};
}

}  // namespace octet::cpu
#endif
