// States of weights as f32 and back, by the formulas of math/: a warp for each group, of any size.
#include <algorithm>

#include "backends/cuda/kernels/adamw/adamw.h"
#include "backends/cuda/kernels/adamw/adamw_any.cuh"
#include "backends/cuda/launch/context.h"
#include "base/integer.h"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int64_t kWideGroup = 1024;  // of elements without metadata, for a warp

struct LoadTask {
  StateParams p;
  const void* x;
  const void* rest;
  float* y;
};
struct SaveTask {
  StateParams p;
  const float* x;
  const uint8_t* skip;
  const void* old;
  const void* old_rest;
  const uint32_t* attempt;
  void* y;
  void* rest;
};

__device__ __forceinline__ MomentCoding coding_of(const StateParams& p) {
  return {.dtype = p.state,
          .moment = p.second ? Moment::second : Moment::first,
          .expand = p.expand,
          .stochastic = p.stochastic,
          .math = p.exact ? MathMode::exact : MathMode::fast};
}

// f(first, end, group) for each group that this warp has.
template <typename Fn>
__device__ __forceinline__ void for_groups(const StateParams& p, Fn&& f) {
  const int64_t n_groups = (p.n + p.group - 1) / p.group;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t g = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; g < n_groups; g += stride)
    f(g * p.group, min(p.n, (g + 1) * p.group), g);
}

__global__ void __launch_bounds__(kThreads) load_state_any(const __grid_constant__ LoadTask t) {
  const MomentCoding coding = coding_of(t.p);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for_groups(t.p, [&](int64_t first, int64_t end, int64_t group) {
    if (!is_coded(coding.dtype)) {
      for (int64_t i = first + lane; i < end; i += 32) {
        t.y[i] = t.p.has_remainder ? join_master({static_cast<const uint16_t*>(t.x)[i],
                                                  static_cast<const int16_t*>(t.rest)[i]})
                                   : load_wide(coding.dtype, t.x, i);
      }
      return;
    }
    const uint32_t meta = static_cast<const uint32_t*>(t.rest)[group];
    visit_moment_codes<Formats::all>(coding.dtype, [&]<Dtype D>() {
      for (int64_t i = first + lane; i < end; i += 32) {
        t.y[i] = detail::decode_moment<D>(coding, meta, static_cast<const uint8_t*>(t.x)[i]);
      }
    });
  });
}

__device__ __forceinline__ void save_wide(const SaveTask& t, const RandomStream& random,
                                          int64_t i) {
  const float x = t.x[i];
  if (t.p.has_remainder) {
    const MasterBits parts = split_master(x);
    static_cast<uint16_t*>(t.y)[i] = parts.hi;
    static_cast<int16_t*>(t.rest)[i] = parts.lo;
  } else if (t.p.stochastic && t.p.state == Dtype::bf16) {
    static_cast<uint16_t*>(t.y)[i] =
        stochastic_bf16(x, random.bits(static_cast<uint64_t>(t.p.first + i)));
  } else {
    store_wide(t.p.state, t.y, i, x);
  }
}

__global__ void __launch_bounds__(kThreads) save_state_any(const __grid_constant__ SaveTask t) {
  if (*t.skip != 0) return;
  const MomentCoding coding = coding_of(t.p);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const RandomStream random{.name = t.p.stream,
                            .seed = t.p.seed,
                            .step = t.attempt == nullptr ? 0u : *t.attempt,
                            .micro_batch = 0};
  for_groups(t.p, [&](int64_t first, int64_t end, int64_t group) {
    if (!is_coded(coding.dtype)) {
      for (int64_t i = first + lane; i < end; i += 32) save_wide(t, random, i);
      return;
    }
    AbsRange range;
    for (int64_t i = first + lane; i < end; i += 32) range = join(range, stored_moment(t.x[i]));
    const AbsRange whole = range_of_warp(range);
    const uint32_t meta = t.p.second ? meta_of<Formats::all, Moment::second>(coding, whole)
                                     : meta_of<Formats::all, Moment::first>(coding, whole);
    if (lane == 0) static_cast<uint32_t*>(t.rest)[group] = meta;
    visit_moment_codes<Formats::all>(coding.dtype, [&]<Dtype D>() {
      for (int64_t i = first + lane; i < end; i += 32) {
        const uint32_t word =
            coding.stochastic ? random.bits(static_cast<uint64_t>(t.p.first + i)) : 0;
        const uint32_t code =
            meta == 0 ? 0u : encode_moment<D>(coding, meta, stored_moment(t.x[i]), word);
        static_cast<uint8_t*>(t.y)[i] = static_cast<uint8_t>(code);
      }
    });
  });
}

// f32, and BF16 with a remainder, of addresses that are multiples of an f32's eight: eight elements
// a thread at once, the last few one by one.
bool moves_eights(const StateParams& p, std::initializer_list<const void*> addresses) {
  return (p.state == Dtype::f32 || p.has_remainder) &&
         std::ranges::all_of(addresses, [](const void* address) {
           return reinterpret_cast<uintptr_t>(address) % sizeof(Pack<float, 8>) == 0;
         });
}
template <typename Eight, typename One>
__device__ __forceinline__ void for_eights(int64_t n, Eight&& eight, One&& one) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * 8;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8; i < n; i += stride) {
    if (i + 8 <= n) {
      eight(i);
    } else {
      for (int64_t j = i; j < n; ++j) one(j);
    }
  }
}

__global__ void __launch_bounds__(kThreads) load_state_eights(const __grid_constant__ LoadTask t) {
  const auto* hi = static_cast<const uint16_t*>(t.x);
  const auto* lo = static_cast<const int16_t*>(t.rest);
  const auto* wide = static_cast<const float*>(t.x);
  for_eights(
      t.p.n,
      [&](int64_t i) {
        if (!t.p.has_remainder) return store_pack<8>(t.y + i, load_pack<8>(wide + i));
        const auto upper = load_pack<8>(hi + i);
        const auto lower = load_pack<8>(lo + i);
        Pack<float, 8> y;
#pragma unroll
        for (int j = 0; j < 8; ++j) y.at[j] = join_master({upper.at[j], lower.at[j]});
        store_pack<8>(t.y + i, y);
      },
      [&](int64_t i) {
        t.y[i] = t.p.has_remainder ? join_master({hi[i], lo[i]}) : wide[i];
      });
}

__global__ void __launch_bounds__(kThreads) save_state_eights(const __grid_constant__ SaveTask t) {
  if (*t.skip != 0) return;
  for_eights(
      t.p.n,
      [&](int64_t i) {
        const auto x = load_pack<8>(t.x + i);
        if (!t.p.has_remainder) return store_pack<8>(static_cast<float*>(t.y) + i, x);
        Pack<uint16_t, 8> upper;
        Pack<int16_t, 8> lower;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const MasterBits parts = split_master(x.at[j]);
          upper.at[j] = parts.hi, lower.at[j] = parts.lo;
        }
        store_pack<8>(static_cast<uint16_t*>(t.y) + i, upper);
        store_pack<8>(static_cast<int16_t*>(t.rest) + i, lower);
      },
      [&](int64_t i) { save_wide(t, {}, i); });
}

// What a step that is skipped leaves as it was.
__global__ void keep_state(const uint8_t* skip, const uint8_t* old, uint8_t* y, int64_t n_bytes) {
  if (*skip == 0) return;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n_bytes; i += stride)
    y[i] = old[i];
}

unsigned blocks_of(int n_sm, int64_t n_warps) {
  constexpr int kEachSm = 8;
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(n_warps, kWarps), 1, int64_t{n_sm} * kEachSm));
}

StateParams with_groups(StateParams p) {
  if (p.group == 0) p.group = kWideGroup;
  return p;
}

class LoadState : public Prepared {
 public:
  LoadState(const StateParams& params, int n_sm)
      : p_(with_groups(params)), n_sm_(n_sm), blocks_(blocks_of(n_sm, ceil_div(p_.n, p_.group))) {}

  void launch(const Launch& args) override {
    using S = octet::LoadState;
    const bool has_rest = p_.has_remainder || is_moment_format(p_.state);
    const LoadTask t{p_, args.operands[S::x], has_rest ? args.operands[S::rest] : nullptr,
                     args.out<float>(S::y)};
    if (moves_eights(p_, {t.x, t.rest, t.y}))
      load_state_eights<<<blocks_of(n_sm_, ceil_div(p_.n, 256)), kThreads, 0, args.stream>>>(t);
    else
      load_state_any<<<blocks_, kThreads, 0, args.stream>>>(t);
    check_launch("load_state");
  }

 private:
  StateParams p_;
  int n_sm_;
  unsigned blocks_;
};

class SaveState : public Prepared {
 public:
  SaveState(const StateParams& params, int n_sm)
      : p_(with_groups(params)), n_sm_(n_sm), blocks_(blocks_of(n_sm, ceil_div(p_.n, p_.group))) {}

  void launch(const Launch& args) override {
    using S = octet::StoreState;
    const bool has_meta = is_moment_format(p_.state), has_rest = p_.has_remainder || has_meta;
    const SaveTask t{.p = p_,
                     .x = args.in<float>(S::x),
                     .skip = args.in<uint8_t>(S::skip),
                     .old = args.operands[S::old],
                     .old_rest = has_rest ? args.operands[S::old_rest] : nullptr,
                     .attempt = p_.stochastic ? args.in<uint32_t>(S::attempt) : nullptr,
                     .y = args.results[S::y],
                     .rest = has_rest ? args.results[S::rest] : nullptr};
    if (moves_eights(p_, {t.x, t.rest, t.y}))
      save_state_eights<<<blocks_of(n_sm_, ceil_div(p_.n, 256)), kThreads, 0, args.stream>>>(t);
    else
      save_state_any<<<blocks_, kThreads, 0, args.stream>>>(t);
    check_launch("store_state");
    const int64_t rest_bytes = has_meta ? 4 * ceil_div(p_.n, p_.group) : 2 * p_.n;
    keep(args, t.old, t.y, p_.n * p_.bytes);
    if (has_rest) keep(args, t.old_rest, t.rest, rest_bytes);
  }

 private:
  void keep(const Launch& args, const void* old, void* y, int64_t n_bytes) const {
    if (old == y || n_bytes == 0) return;
    keep_state<<<blocks_of(n_sm_, ceil_div(n_bytes, 32)), kThreads, 0, args.stream>>>(
        args.in<uint8_t>(octet::StoreState::skip), static_cast<const uint8_t*>(old),
        static_cast<uint8_t*>(y), n_bytes);
    check_launch("store_state");
  }

  StateParams p_;
  int n_sm_;
  unsigned blocks_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_load_state(const Request& request) {
  return std::make_unique<LoadState>(request.get<StateParams>(), request.context.n_sm);
}
std::unique_ptr<Prepared> prepare_store_state(const Request& request) {
  return std::make_unique<SaveState>(request.get<StateParams>(), request.context.n_sm);
}

}  // namespace octet::cuda
