#include "backends/cpu/codec/codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/codec/codec.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>
#include "backends/cpu/codec/codec_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

using Loops = ScalarLoops;

#else

template <Dtype D>
constexpr bool kVector = D == Dtype::e4m3 || D == Dtype::e5m2 || D == Dtype::hif8;

struct Loops {
  template <Dtype D, typename T>
  static void encode_scaled(const T* x, size_t n, float inv_scale, uint8_t* codes) {
    size_t i = 0;
    if constexpr (kVector<D>) {
      const size_t lanes = hn::Lanes(F32());
      const VF inv = hn::Set(F32(), inv_scale);
      for (; i + 2 * lanes <= n; i += 2 * lanes) {
        const VF lo = hn::Mul(load_values(x + i), inv);
        const VF hi = hn::Mul(load_values(x + i + lanes), inv);
        store_codes<D>(lo, hi, codes + i);
      }
    }
    ScalarLoops::encode_scaled<D>(x + i, n - i, inv_scale, codes + i);
  }

  template <Dtype D>
  static void decode_f32(const uint8_t* codes, size_t n, float scale, float* x) {
    size_t i = 0;
    if constexpr (kVector<D>) {
      const size_t lanes = hn::Lanes(F32());
      const VF factor = hn::Set(F32(), scale);
      for (; i + lanes <= n; i += lanes) {
        hn::StoreU(hn::Mul(load_decoded<D>(codes + i), factor), F32(), x + i);
      }
    }
    ScalarLoops::decode_f32<D>(codes + i, n - i, scale, x + i);
  }

  template <Dtype D>
  static void decode_bf16(const uint8_t* codes, size_t n, uint16_t* x) {
    size_t i = 0;
#if HWY_TARGET <= HWY_AVX3
    if constexpr (D == Dtype::e4m3 || D == Dtype::e5m2) {
      for (; i + 32 <= n; i += 32) decode_32_to_bf16<D>(codes + i, x + i);
    }
#endif
    if constexpr (kVector<D>) {
      const size_t lanes = hn::Lanes(F32());
      for (; i + lanes <= n; i += lanes) {
        const VI upper = shift_right<16>(bits(decode_lanes<D>(load_codes(codes + i))));
        hn::StoreU(hn::DemoteTo(U16(), upper), U16(), x + i);
      }
    }
    ScalarLoops::decode_bf16<D>(codes + i, n - i, x + i);
  }

  template <Dtype D>
  static void encode_16(const float* x, size_t n, uint16_t* codes) {
    const size_t lanes = hn::Lanes(F32());
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const VI code = encode_lanes<D>(hn::LoadU(F32(), x + i));
      hn::StoreU(hn::DemoteTo(U16(), code), U16(), codes + i);
    }
    ScalarLoops::encode_16<D>(x + i, n - i, codes + i);
  }

  template <Dtype D>
  static void decode_16(const uint16_t* codes, size_t n, float* x) {
    const size_t lanes = hn::Lanes(F32());
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(decode_lanes<D>(load_codes(codes + i)), F32(), x + i);
    }
    ScalarLoops::decode_16<D>(codes + i, n - i, x + i);
  }
};

#endif  // vector targets

Codec FindCodec(Dtype format) {
  return codec_of<Loops>(format);
}

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(FindCodec);

Codec simd_codec(Dtype format) {
  return HWY_DYNAMIC_DISPATCH(FindCodec)(format);
}
Codec scalar_codec(Dtype format) {
  return codec_of<ScalarLoops>(format);
}

}  // namespace octet::cpu
#endif
