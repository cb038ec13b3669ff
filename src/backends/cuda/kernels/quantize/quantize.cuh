// Shared parts of the kernels of scales and codes, and their parts of the family's list.
#pragma once

#include "backends/cuda/kernels/common/group_scale.cuh"
#include "backends/cuda/params/quantize.h"

namespace octet::cuda {

// formats/quantize.h's scale_from_amax for any rule, as the f32 that its stored bits decode to.
struct ScaleMaker {
  float target, inv_target;
  ScaleRule rule;
  Dtype type;  // f32, bf16, e8m0
};
__device__ __forceinline__ float power_scale_of(const ScaleMaker& m, float amax) {
  const bool mx = m.type == Dtype::e8m0;
  if (amax == 0.0f) return mx ? power_of_two(-127) : 1.0f;
  const Unpacked a = unpack(amax), t = unpack(m.target);
  const bool more = m.rule == ScaleRule::power_ceil && a.significand > t.significand;
  const int exponent = a.exponent - t.exponent + (more ? 1 : 0);
  return power_of_two(min(max(exponent, mx ? -127 : -100), 127));
}
__device__ __forceinline__ float make_scale(const ScaleMaker& m, float amax) {
  if (m.rule != ScaleRule::linear) return power_scale_of(m, amax);
  if (m.type == Dtype::bf16) return to_float<Dtype::bf16>(group_scale(amax, m.inv_target));
  return tensor_scale(amax, m.inv_target);
}
// Scale i: f32, bf16, or e8m0, whose code is the exponent of a power's bits.
__device__ __forceinline__ void store_scale(void* scales, int64_t i, Dtype type, float scale) {
  if (type == Dtype::f32) {
    static_cast<float*>(scales)[i] = scale;
  } else if (type == Dtype::e8m0) {
    static_cast<uint8_t*>(scales)[i] = static_cast<uint8_t>(__float_as_uint(scale) >> 23);
  } else {
    static_cast<uint16_t*>(scales)[i] = from_float<Dtype::bf16>(scale);
  }
}

// codes times their scales, as params/quantize.h says.
struct DequantizeCall {
  const void* codes = nullptr;
  const void* scales = nullptr;
  void* y = nullptr;
  cudaStream_t stream = nullptr;
};
void launch_dequantize(const DequantizeParams& p, const DequantizeCall& call);

// Calls f.template operator()<D>() for a format that `Takes` takes; throws ModuleError for another.
template <bool (*Takes)(Dtype), int First = 0, typename F>
auto visit_rows_of(Dtype dtype, F&& f) {
  constexpr int kRow = kNextFormat<Takes, First>;
  if constexpr (kRow < kFormatCount) {
    if (dtype != kFormats[kRow].dtype) return visit_rows_of<Takes, kRow + 1>(dtype, f);
    return f.template operator()<kFormats[kRow].dtype>();
  } else {
    throw ModuleError("[cuda] expected a format that this kernel takes, got " +
                      std::string(dtype_name(dtype)));
  }
}
// The same for quantized data.
template <typename F>
auto visit_format(Dtype dtype, F&& f) {
  return visit_rows_of<has_codec>(dtype, f);
}

void run_groups(const GroupParams& p, const Launch& args);
void run_blocks(const BlockParams& p, const Launch& args);
void run_fake(const FakeQuantizeParams& p, const Launch& args);
void run_dequantize(const DequantizeParams& p, const Launch& args);
void run_periodic_scale(const PeriodicScaleParams& p, const Launch& args);
std::unique_ptr<Prepared> prepare_amax(const Request& request);
std::unique_ptr<Prepared> prepare_any_of(const Request& request);
std::unique_ptr<Prepared> prepare_scale(const Request& request);
std::unique_ptr<Prepared> prepare_amax_quantize(const Request& request);

}  // namespace octet::cuda
