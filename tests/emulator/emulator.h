// Runs the CUDA module's kernels on the CPU, for tests on machines without a GPU: blocks one after
// another, the threads of a block as fibers of one thread, which take turns where they wait for
// each other. translate.py makes C++ of the sources; this file stands in front of each of them.
//
// It shows what a kernel computes, reads and writes. It does not show races between blocks or warps
// (they run in one order), and approximate instructions are those of the C library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __grid_constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

#include "launches.h"

namespace emulator {

// 10 major + minor of what is emulated; OCTET_EMULATED_CAPABILITY names another than Hopper.
int capability();

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
// Indices of the fiber that runs.
struct Place {
  Index thread, block, grid_size, block_size;
};
extern Place place;

// All threads of the block, or the lanes of `mask` that have not ended, are here.
void wait_for_block();
void wait_for_lanes(uint32_t mask);
// Values of a mask's lanes that had not ended; they stay until the lanes' next exchange but one.
struct Brought {
  uint64_t at[32];
  uint32_t lanes = 0;
};
const Brought& exchange(uint32_t mask, uint64_t mine);

// Now, or where a stream is recorded when that is replayed.
void enqueue(std::function<void()> work);
// Runs `thread` for every thread of every block.
void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);
// Faults of a kernel's result (processes.h): the last address among its arguments that it may write
// to, of as many elements as its parameters count.
bool has_fault_of(std::string_view kernel);
void damage_result(std::string_view kernel, void* result, size_t bytes);
template <typename... Args>
void damage_result_of(std::string_view kernel, const Args&... args) {
  void* result = nullptr;
  size_t width = 0, count = 0;
  const auto look_at = [&]<typename T>(const T& arg) {
    using Element = std::remove_pointer_t<T>;
    if constexpr (std::is_pointer_v<T> && std::is_object_v<Element> && !std::is_const_v<Element>)
      result = arg, width = sizeof(Element);
    if constexpr (requires { static_cast<size_t>(arg.count); }) count = arg.count;
  };
  (look_at(args), ...);
  damage_result(kernel, result, width * count);
}

// Arguments are those of this moment.
template <typename Kernel, typename... Args>
void launch(std::string_view name, dim3 grid, dim3 block, size_t shared_bytes, const Kernel& kernel,
            Args... args) {
  note_launch(name);
  enqueue([=] {
    run(grid, block, shared_bytes, [&] { kernel(args...); });
    if (has_fault_of(name)) damage_result_of(name, args...);
  });
}
void* shared_memory();
// Number of the block that runs, counted over all launches.
extern uint64_t block_number;
// Fills a variable of shared memory with ones, bit by bit, where this block meets it first.
template <typename T>
void poison_once(uint64_t& seen, T& variable) {
  if (seen == block_number) return;
  seen = block_number;
  std::memset(static_cast<void*>(&variable), 0xFF, sizeof(variable));
}
template <typename T>
T* dynamic_shared() {
  return static_cast<T*>(shared_memory());
}

inline uint32_t lane() {
  return place.thread.x % 32;
}

template <typename T>
uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <typename T>
T value_of(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
// The value of lane `from`, one's own where there is none.
template <typename T>
T shuffle(uint32_t mask, T mine, int from) {
  const Brought& all = exchange(mask, bits_of(mine));
  return from >= 0 && from < 32 ? value_of<T>(all.at[from]) : mine;
}
template <typename T, typename F>
T reduce(uint32_t mask, T mine, F&& join) {
  const Brought& all = exchange(mask, bits_of(mine));
  T result = mine;
  for (int i = 0; i < 32; ++i) {
    if ((all.lanes >> i & 1) != 0) result = join(result, value_of<T>(all.at[i]));
  }
  return result;
}

}  // namespace emulator

inline void __syncthreads() {
  emulator::wait_for_block();
}
inline int __syncthreads_or(int mine) {
  __shared__ int any;
  __syncthreads();
  any = 0;
  __syncthreads();
  any |= static_cast<int>(mine != 0);
  __syncthreads();
  return any;
}
inline void __syncwarp(uint32_t mask = ~0u) {
  emulator::wait_for_lanes(mask);
}
inline void __threadfence() {}

template <typename T>
T __shfl_xor_sync(uint32_t mask, T x, int step) {
  return emulator::shuffle(mask, x, static_cast<int>(emulator::lane()) ^ step);
}
template <typename T>
T __shfl_sync(uint32_t mask, T x, int from, int width = 32) {
  const auto own = static_cast<int>(emulator::lane());
  return emulator::shuffle(mask, x, own / width * width + from % width);
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T x, int step) {
  return emulator::shuffle(mask, x, static_cast<int>(emulator::lane()) - step);
}
template <typename T>
T __reduce_max_sync(uint32_t mask, T x) {
  return emulator::reduce(mask, x, [](T a, T b) { return std::max(a, b); });
}
template <typename T>
T __reduce_min_sync(uint32_t mask, T x) {
  return emulator::reduce(mask, x, [](T a, T b) { return std::min(a, b); });
}
template <typename T>
T __reduce_or_sync(uint32_t mask, T x) {
  return emulator::reduce(mask, x, [](T a, T b) { return a | b; });
}
inline uint32_t __ballot_sync(uint32_t mask, bool is) {
  return __reduce_or_sync(mask, is ? 1u << emulator::lane() : 0u);
}
inline bool __any_sync(uint32_t mask, bool is) {
  return __ballot_sync(mask, is) != 0;
}
inline bool __all_sync(uint32_t mask, bool is) {
  return __ballot_sync(mask, !is) == 0;
}
// All that come here at some time.
inline uint32_t __activemask() {
  return emulator::exchange(~0u, 0).lanes;
}
template <typename T>
uint32_t __match_any_sync(uint32_t mask, T x) {
  const emulator::Brought& all = emulator::exchange(mask, emulator::bits_of(x));
  uint32_t same = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((all.lanes >> i & 1) != 0 && emulator::value_of<T>(all.at[i]) == x) same |= 1u << i;
  }
  return same;
}

namespace emulator {
// *at becomes next(*at); what it was.
template <typename T, typename F>
T replace(T* at, F&& next) {
  const T before = *at;
  *at = static_cast<T>(next(before));
  return before;
}
}  // namespace emulator

template <typename T, typename U>
T atomicAdd(T* at, U x) {
  return emulator::replace(at, [=](T before) { return before + x; });
}
template <typename T, typename U>
T atomicMax(T* at, U x) {
  return emulator::replace(at, [=](T before) { return std::max(before, static_cast<T>(x)); });
}
template <typename T, typename U>
T atomicMin(T* at, U x) {
  return emulator::replace(at, [=](T before) { return std::min(before, static_cast<T>(x)); });
}
template <typename T, typename U>
T atomicOr(T* at, U x) {
  return emulator::replace(at, [=](T before) { return before | static_cast<T>(x); });
}
template <typename T, typename U>
T atomicExch(T* at, U x) {
  return emulator::replace(at, [=](T) { return x; });
}
inline unsigned atomicInc(unsigned* at, unsigned most) {
  return emulator::replace(at, [=](unsigned before) { return before >= most ? 0 : before + 1; });
}

// Accesses of 16 bytes are to be aligned to that, as a GPU wants them.
void expect_aligned(const void* at, size_t bytes);
template <typename T>
T __ldcg(const T* at) {
  expect_aligned(at, sizeof(T));
  return *at;
}
template <typename T>
T __ldcs(const T* at) {
  return __ldcg(at);
}
template <typename T>
void __stcg(T* at, T x) {
  expect_aligned(at, sizeof(T));
  *at = x;
}
template <typename T>
void __stcs(T* at, T x) {
  __stcg(at, x);
}

inline float __uint_as_float(uint32_t x) {
  return emulator::value_of<float>(x);
}
inline uint32_t __float_as_uint(float x) {
  return static_cast<uint32_t>(emulator::bits_of(x));
}
inline float __int_as_float(int32_t x) {
  return emulator::value_of<float>(static_cast<uint32_t>(x));
}
inline int32_t __float_as_int(float x) {
  return static_cast<int32_t>(__float_as_uint(x));
}
inline double __longlong_as_double(int64_t x) {
  return emulator::value_of<double>(static_cast<uint64_t>(x));
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
// Towards minus infinity.
inline float __fadd_rd(float a, float b) {
  const double exact = static_cast<double>(a) + b;
  const auto near = static_cast<float>(exact);
  return near > exact ? std::nextafter(near, -INFINITY) : near;
}
inline float __saturatef(float x) {
  return x > 0 ? std::min(x, 1.0f) : 0.0f;
}
inline int __popc(uint32_t x) {
  return __builtin_popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t which = selector >> 4 * i & 0xF;
    auto byte = static_cast<uint32_t>(bytes >> 8 * (which & 7) & 0xFF);
    if ((which & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
    result |= byte << 8 * i;
  }
  return result;
}
inline uint32_t __vcmpgeu2(uint32_t a, uint32_t b) {
  return ((a & 0xFFFFu) >= (b & 0xFFFFu) ? 0xFFFFu : 0u) | (a >> 16 >= b >> 16 ? 0xFFFF0000u : 0u);
}
inline uint32_t __vmaxu2(uint32_t a, uint32_t b) {
  return std::max(a >> 16, b >> 16) << 16 | std::max(a & 0xFFFF, b & 0xFFFF);
}
inline uint32_t __vmaxs2(uint32_t a, uint32_t b) {
  const auto most = [](uint32_t x, uint32_t y) {
    return static_cast<uint16_t>(std::max(static_cast<int16_t>(x), static_cast<int16_t>(y)));
  };
  return uint32_t{most(a >> 16, b >> 16)} << 16 | most(a & 0xFFFF, b & 0xFFFF);
}
inline uint32_t __vimax3_u32(uint32_t a, uint32_t b, uint32_t c) {
  return std::max(a, std::max(b, c));
}
inline uint32_t __vimin3_u32(uint32_t a, uint32_t b, uint32_t c) {
  return std::min(a, std::min(b, c));
}
using std::isfinite;
using std::isnan;
inline float cospif(float x) {
  return static_cast<float>(std::cos(x * 3.14159265358979323846));
}
inline float rsqrtf(float x) {
  return 1 / std::sqrt(x);
}
template <typename A, typename B>
constexpr auto min(A a, B b) {
  return b < a ? static_cast<std::common_type_t<A, B>>(b)
               : static_cast<std::common_type_t<A, B>>(a);
}
template <typename A, typename B>
constexpr auto max(A a, B b) {
  return a < b ? static_cast<std::common_type_t<A, B>>(b)
               : static_cast<std::common_type_t<A, B>>(a);
}

// A place in shared memory as 32 bits, and back.
size_t __cvta_generic_to_shared(const void* at);
namespace emulator {
void* shared_at(uint32_t address);
}

#define cudaLaunchKernelEx emulated_launch
template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  const auto name = emulator::name_of(reinterpret_cast<const void*>(kernel));
  emulator::launch(name, config->gridDim, config->blockDim, config->dynamicSmemBytes, kernel,
                   Params(args)...);
  return cudaSuccess;
}
template <typename... Params>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void (*)(Params...)) {
  return cudaSuccess;
}
template <typename... Params>
cudaError_t cudaFuncSetAttribute(void (*)(Params...), cudaFuncAttribute, int) {
  return cudaSuccess;
}

#include "emulator_asm.h"
