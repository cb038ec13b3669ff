#include "backends/cpu/common/isa.h"

#include <cpuid.h>

#include <dnnl.hpp>
#include <mutex>

#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/highway.h>

#include "base/error.h"

namespace octet::cpu {
namespace {

constexpr std::string_view kNames[] = {"scalar", "avx2", "avx512", "amx"};

// The tile unit counts only where the system saves its registers (bits 17 and 18 of XCR0).
bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if ((d & (1u << 22)) == 0 || (d & (1u << 24)) == 0) return false;
  unsigned lo = 0, hi = 0;
  asm volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (lo & 0x60000u) == 0x60000u;
}

dnnl::cpu_isa library_isa(Isa isa) {
  if (isa == Isa::avx2) return dnnl::cpu_isa::avx2;
  return isa == Isa::avx512 ? dnnl::cpu_isa::avx512_core_bf16 : dnnl::cpu_isa::avx512_core_amx;
}

int64_t highway_targets(Isa isa) {
  const int64_t upto_avx2 = HWY_AVX2 | HWY_STATIC_TARGET;
  return isa == Isa::avx2 ? upto_avx2 : HWY_AVX3 | upto_avx2;
}

// Each set of instructions is a bit; the one of AVX2's own dot products is no use to these kernels.
bool library_exceeds(Isa isa) {
  const int limit = static_cast<int>(library_isa(isa)) | static_cast<int>(dnnl::cpu_isa::avx2_vnni);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & ~limit) != 0;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  return kNames[static_cast<int>(isa)];
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (int i = 0; i < 4; ++i) {
    if (kNames[i] == name) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

Isa detect_isa() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!avx2) return Isa::scalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::avx2;
  return has_amx_bf16() ? Isa::amx : Isa::avx512;
}

bool has_slow_divider() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
}

void limit_isa(Isa isa) {
  const Isa best = detect_isa();
  if (isa > best) {
    throw Error(ErrorCode::invalid_argument, "[isa] expected at most {}, got {}", isa_name(best),
                isa_name(isa));
  }
  if (isa == Isa::scalar) return;
  static std::mutex mutex;
  static Isa current = Isa::scalar;  // kernels may be running that another thread made
  const std::lock_guard lock(mutex);
  if (isa == current) return;
  const dnnl::status status = dnnl::set_max_cpu_isa(library_isa(isa));
  // Too late to change it: harmless as long as the library stays within the limit.
  if (status != dnnl::status::success && library_exceeds(isa)) {
    throw Error(ErrorCode::invalid_argument,
                "[isa] expected a limit before the first kernel, got {} after it", isa_name(isa));
  }
  hwy::SetSupportedTargetsForTest(0);  // what the machine has, whatever an earlier call said
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & highway_targets(isa));
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  current = isa;
}

Dtype bf16_compute_dtype() {
  constexpr int kBf16 = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  const int isa = static_cast<int>(dnnl::get_effective_cpu_isa());
  return (isa & kBf16) == kBf16 ? Dtype::bf16 : Dtype::f32;
}

}  // namespace octet::cpu
