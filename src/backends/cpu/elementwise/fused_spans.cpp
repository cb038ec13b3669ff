#include "backends/cpu/elementwise/fused_spans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/fused_spans.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/codec/codec_decode-inl.h"
#include "backends/cpu/common/simd_math-inl.h"
#include "backends/cpu/elementwise/normalize-inl.h"
#include "backends/cpu/elementwise/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX3

constexpr int64_t kLanes = 16;

struct F32Lanes {
  In x;
  HWY_INLINE VF operator()(int64_t i) const { return load(Full(), x, i); }
};
// A register is a group.
struct CodeLanes {
  const uint8_t* codes;
  const uint16_t* scales;
  HWY_INLINE VF operator()(int64_t i) const {
    const auto scale = static_cast<int32_t>(uint32_t{scales[i / kLanes]} << 16);
    return hn::Mul(load_decoded<Dtype::e4m3>(codes + i), value(hn::Set(I32(), scale)));
  }
};

int64_t start_of(const RowSpan& span) {
  return span.row * span.cols + span.col;
}
CodeLanes code_lanes(const QuantizedMatrix& matrix, const RowSpan& span) {
  const int64_t group = span.row * ceil_div(span.cols, kLanes) + span.col / kLanes;
  return {static_cast<const uint8_t*>(matrix.x.data) + start_of(span),
          static_cast<const uint16_t*>(matrix.scales.data) + group};
}
bool is_coded(const QuantizedMatrix& matrix) {
  return matrix.group == kLanes && matrix.x.dtype == Dtype::e4m3 &&
         matrix.scales.dtype == Dtype::bf16;
}
bool is_readable(const QuantizedMatrix& matrix) {
  return matrix.group == 0 || is_coded(matrix);
}
bool is_writable(const SpanOutput& output) {
  return output.amax != nullptr || output.format == Dtype::e4m3 || output.format == Dtype::e5m2;
}

// Registers that are computed side by side.
constexpr int kBlock = 4;

// fn(i, v) for every register: values.at(i, v) makes the values of several at a time.
template <typename Values, typename Fn>
HWY_INLINE void for_values(const Values& values, int64_t n, Fn&& fn) {
  int64_t i = 0;
  for (; i + kBlock * kLanes <= n; i += kBlock * kLanes) {
    VF v[kBlock];
    values.at(i, v);
    HWY_UNROLL(4) for (int j = 0; j < kBlock; ++j) fn(i + j * kLanes, v[j]);
  }
  for (; i < n; i += kLanes) {
    VF v[1];
    values.at(i, v);
    fn(i, v[0]);
  }
}

template <typename Values>
HWY_INLINE float amax_of(const Values& values, int64_t n) {
  MagnitudeLanes lanes{hn::Zero(I32())};
  for_values(values, n, [&](int64_t, VF v) HWY_ATTR { lanes.add(v); });
  if (lanes.all_finite()) return max_of(lanes.value());
  VF top = zero(), sum = zero();
  for_values(values, n, [&](int64_t, VF v) HWY_ATTR {
    top = hn::Max(top, finite_magnitude(v));
    sum = hn::Add(sum, hn::Mul(v, zero()));  // NaN where v is not finite
  });
  const float amax = max_of(top);
  return hn::AllFalse(F32(), hn::IsNaN(sum)) ? amax : -amax;
}

template <Dtype D, typename Values>
HWY_INLINE void codes_of(const Values& values, int64_t n, const SpanOutput& output) {
  const VF inv = set(output.inv_scale);
  uint8_t* const codes = output.codes;
  for_values(values, n, [&](int64_t i, VF v) HWY_ATTR {
    store_bytes(encode_lanes<D>(hn::Mul(v, inv)), codes + i);
  });
}

template <typename Values>
HWY_INLINE void write_values(const Values& values, int64_t n, const SpanOutput& output) {
  if (output.amax != nullptr) {
    *output.amax = amax_of(values, n);
  } else if (output.format == Dtype::e4m3) {
    codes_of<Dtype::e4m3>(values, n, output);
  } else {
    codes_of<Dtype::e5m2>(values, n, output);
  }
}

bool Read(const QuantizedMatrix& matrix, const RowSpan& span, float* buffer) {
  if (!is_coded(matrix) || span.n % kLanes != 0) return false;
  const CodeLanes lanes = code_lanes(matrix, span);
  for (int64_t i = 0; i < span.n; i += kLanes) hn::StoreU(lanes(i), F32(), buffer + i);
  return true;
}

template <typename Lanes>
struct GatedValues {
  Lanes gate, up;
  template <int N>
  HWY_INLINE void at(int64_t i, VF (&v)[N]) const {
    HWY_UNROLL(4) for (int j = 0; j < N; ++j) v[j] = gate(i + j * kLanes);
    silu_each(v);
    HWY_UNROLL(4) for (int j = 0; j < N; ++j) v[j] = hn::Mul(v[j], up(i + j * kLanes));
  }
};

bool Gated(const QuantizedMatrix& gate, const QuantizedMatrix& up, const RowSpan& span,
           const SpanOutput& output) {
  if (!is_readable(gate) || gate.group != up.group || !is_readable(up)) return false;
  if (!is_writable(output) || span.n % kLanes != 0) return false;
  if (gate.group != 0) {
    write_values(GatedValues<CodeLanes>{code_lanes(gate, span), code_lanes(up, span)}, span.n,
                 output);
  } else {
    const int64_t at = start_of(span);
    write_values(GatedValues<F32Lanes>{{offset(gate.x, at)}, {offset(up.x, at)}}, span.n, output);
  }
  return true;
}

template <int N>
HWY_INLINE void gated_backward_at(CodeLanes gate, CodeLanes up, const ActivationBackward& a,
                                  int64_t i) {
  VF x[N];
  SiluLanes s[N];
  HWY_UNROLL(4) for (int j = 0; j < N; ++j) x[j] = gate(i + j * kLanes);
  silu_with_slope_each(x, s);
  HWY_UNROLL(4) for (int j = 0; j < N; ++j, i += kLanes) {
    const VF dy = load(Full(), a.dy, i);
    store(Full(), hn::Mul(hn::Mul(dy, up(i)), s[j].slope), a.dx, i);
    store(Full(), hn::Mul(dy, s[j].value), a.dup, i);
  }
}

bool GatedBackward(const QuantizedMatrix& gate, const QuantizedMatrix& up, const RowSpan& span,
                   const ActivationBackward& a) {
  if (!is_coded(gate) || !is_coded(up) || span.n % kLanes != 0) return false;
  const CodeLanes gates = code_lanes(gate, span), ups = code_lanes(up, span);
  int64_t i = 0;
  for (; i + kBlock * kLanes <= span.n; i += kBlock * kLanes) {
    gated_backward_at<kBlock>(gates, ups, a, i);
  }
  for (; i < span.n; i += kLanes) gated_backward_at<1>(gates, ups, a, i);
  return true;
}

template <typename Lanes>
struct NormalizedValues {
  Lanes x;
  const NormalizeSpan& a;
  template <int N>
  HWY_INLINE void at(int64_t i, VF (&v)[N]) const {
    const NormLanes row = norm_lanes(a.mean, a.rstd);
    HWY_UNROLL(4) for (int j = 0; j < N; ++j, i += kLanes) {
      v[j] = row.result(x(i), a.weight, a.bias, i, Full());
    }
  }
};

bool Normalize(const QuantizedMatrix* x, const RowSpan& span, const NormalizeSpan& a,
               const SpanOutput& output) {
  if (!is_writable(output) || span.n % kLanes != 0) return false;
  if (x == nullptr) {
    write_values(NormalizedValues<F32Lanes>{{a.x}, a}, span.n, output);
  } else if (x->group == 0) {
    write_values(NormalizedValues<F32Lanes>{{offset(x->x, start_of(span))}, a}, span.n, output);
  } else if (is_coded(*x)) {
    write_values(NormalizedValues<CodeLanes>{code_lanes(*x, span), a}, span.n, output);
  } else {
    return false;
  }
  return true;
}

// Lane j of the result: the maximum of v[j].
HWY_INLINE VF maxima_of(const VF (&v)[kLanes]) {
  __m512 a[8], b[4], c[2];
  HWY_UNROLL(8) for (int i = 0; i < 8; ++i) {
    a[i] = _mm512_max_ps(_mm512_unpacklo_ps(v[2 * i].raw, v[2 * i + 1].raw),
                         _mm512_unpackhi_ps(v[2 * i].raw, v[2 * i + 1].raw));
  }
  HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
    const __m512d lo = _mm512_castps_pd(a[2 * i]), hi = _mm512_castps_pd(a[2 * i + 1]);
    b[i] = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi)));
  }
  HWY_UNROLL(2) for (int i = 0; i < 2; ++i) {
    c[i] = _mm512_max_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x44),
                         _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xEE));
  }
  return VF{_mm512_max_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88),
                          _mm512_shuffle_f32x4(c[0], c[1], 0xDD))};
}

template <Dtype D>
void groups_of(In x, int64_t n, const GroupCodes& out) {
  const float inv_target = 1.0f / out.target;
  HWY_ALIGN float factors[kLanes];
  HWY_ALIGN uint16_t scales[kLanes];
  for (int64_t begin = 0; begin < n; begin += kLanes * kLanes) {
    const int64_t n_groups = std::min(kLanes, (n - begin) / kLanes);
    VF v[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) {
      v[j] = j < n_groups ? finite_magnitude(load(Full(), x, begin + j * kLanes)) : zero();
    }
    const VF scale = group_scale(maxima_of(v), inv_target);
    hn::StoreU(hn::Div(set(1.0f), scale), F32(), factors);
    Full().store(scale, scales);
    std::memcpy(out.scales + begin / kLanes, scales, static_cast<size_t>(n_groups) * 2);
    for (int64_t j = 0; j < n_groups; ++j) {
      const int64_t i = begin + j * kLanes;
      const VF scaled = hn::Mul(load(Full(), x, i), set(factors[j]));
      store_bytes(encode_lanes<D>(scaled), out.codes + i);
    }
  }
}

bool Groups(In x, int64_t n, const GroupCodes& out) {
  if (out.group != kLanes || n % kLanes != 0) return false;
  if (out.format == Dtype::e4m3) {
    groups_of<Dtype::e4m3>(x, n, out);
  } else if (out.format == Dtype::e5m2) {
    groups_of<Dtype::e5m2>(x, n, out);
  } else {
    return false;
  }
  return true;
}

#else

bool Read(const QuantizedMatrix&, const RowSpan&, float*) {
  return false;
}
bool Gated(const QuantizedMatrix&, const QuantizedMatrix&, const RowSpan&, const SpanOutput&) {
  return false;
}
bool GatedBackward(const QuantizedMatrix&, const QuantizedMatrix&, const RowSpan&,
                   const ActivationBackward&) {
  return false;
}
bool Normalize(const QuantizedMatrix*, const RowSpan&, const NormalizeSpan&, const SpanOutput&) {
  return false;
}
bool Groups(In, int64_t, const GroupCodes&) {
  return false;
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(Read);
HWY_EXPORT(Gated);
HWY_EXPORT(GatedBackward);
HWY_EXPORT(Normalize);
HWY_EXPORT(Groups);

bool fused_read(const QuantizedMatrix& matrix, const RowSpan& span, float* buffer) {
  return HWY_DYNAMIC_DISPATCH(Read)(matrix, span, buffer);
}
bool fused_gated(const QuantizedMatrix& gate, const QuantizedMatrix& up, const RowSpan& span,
                 const SpanOutput& output) {
  return HWY_DYNAMIC_DISPATCH(Gated)(gate, up, span, output);
}
bool fused_gated_backward(const QuantizedMatrix& gate, const QuantizedMatrix& up,
                          const RowSpan& span, const ActivationBackward& args) {
  return HWY_DYNAMIC_DISPATCH(GatedBackward)(gate, up, span, args);
}
bool fused_normalize(const QuantizedMatrix* x, const RowSpan& span, const NormalizeSpan& args,
                     const SpanOutput& output) {
  return HWY_DYNAMIC_DISPATCH(Normalize)(x, span, args, output);
}
bool fused_groups(In x, int64_t n, const GroupCodes& out) {
  return HWY_DYNAMIC_DISPATCH(Groups)(x, n, out);
}

}  // namespace octet::cpu
#endif
