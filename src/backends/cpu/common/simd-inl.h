// Vector helpers of the fast kernels, compiled once for each Highway target: loads that widen f32
// or bf16 storage to f32, stores that round once to nearest even (NaN stays NaN), loops over ragged
// lengths.
//
// Storage types are chosen at run time by a branch per vector, which is always predicted: one body
// serves any mix. Reads and writes never pass the last element.
#if defined(OCTET_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_SIMD_INL_H_
#undef OCTET_CPU_SIMD_INL_H_
#else
#define OCTET_CPU_SIMD_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>
#include "backends/cpu/common/operand.h"
#include "backends/cpu/common/simd_targets.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;

HWY_INLINE VF widen_bf16(hn::Vec<U16> bits) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

// Round to nearest even; a NaN keeps its upper bits and gets the quiet bit.
HWY_INLINE hn::Vec<U16> narrow_bf16(VF v) {
  const U32 du;
  const VU bits = hn::BitCast(du, v);
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const VU rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  const VU quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  const VU result = hn::IfThenElse(nan, quiet, rounded);
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(U16(), static_cast<uint16_t>(hn::GetLane(result)));
#else
  return hn::DemoteTo(U16(), hn::BitCast(I32(), result));
#endif
}

// Whole vectors.
struct Full {
  HWY_INLINE VF load(const float* p) const { return hn::LoadU(F32(), p); }
  HWY_INLINE VF load(const uint16_t* p) const { return widen_bf16(hn::LoadU(U16(), p)); }
  HWY_INLINE void store(VF v, float* p) const { hn::StoreU(v, F32(), p); }
  HWY_INLINE void store(VF v, uint16_t* p) const { hn::StoreU(narrow_bf16(v), U16(), p); }
};

// The first n lanes; lanes beyond read as zero and are not written.
struct Part {
  size_t n;
  template <typename T>
  HWY_INLINE VF load(const T* p) const {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(lanes, p, n * sizeof(T));
    return Full().load(lanes);
  }
  template <typename T>
  HWY_INLINE void store(VF v, T* p) const {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(float)];
    Full().store(v, lanes);
    std::memcpy(p, lanes, n * sizeof(T));
  }
};

template <typename Io>
HWY_INLINE VF load(Io io, In x, int64_t i) {
  return x.dtype == Dtype::bf16 ? io.load(static_cast<const uint16_t*>(x.data) + i)
                                : io.load(static_cast<const float*>(x.data) + i);
}
template <typename Io>
HWY_INLINE void store(Io io, VF v, Out y, int64_t i) {
  if (y.dtype == Dtype::bf16) {
    io.store(v, static_cast<uint16_t*>(y.data) + i);
  } else {
    io.store(v, static_cast<float*>(y.data) + i);
  }
}

// fn(i, io) for i = begin, begin + lanes, ... < end; the last call may get a Part.
template <typename Fn>
HWY_INLINE void for_lanes(int64_t begin, int64_t end, Fn&& fn) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) fn(i, Full());
  if (i < end) fn(i, Part{static_cast<size_t>(end - i)});
}

HWY_INLINE float sum_of(VF v) {
  return hn::GetLane(hn::SumOfLanes(F32(), v));
}
HWY_INLINE float max_of(VF v) {
  return hn::GetLane(hn::MaxOfLanes(F32(), v));
}
HWY_INLINE VF set(float x) {
  return hn::Set(F32(), x);
}
HWY_INLINE VF zero() {
  return hn::Zero(F32());
}

// Sets the lanes of a Part that lie beyond its end to `fill`; a Full is left alone.
HWY_INLINE VF keep_lanes(Full, VF v, float) {
  return v;
}
HWY_INLINE VF keep_lanes(Part io, VF v, float fill) {
  return hn::IfThenElse(hn::FirstN(F32(), io.n), v, set(fill));
}

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTET_CPU_SIMD_INL_H_
