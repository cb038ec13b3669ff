// amax, any_of, and the scales made from amax: params/quantize.h.
#include <algorithm>
#include <vector>

#include "backends/cuda/kernels/quantize.cuh"
#include "backends/cuda/kernels/wide.cuh"

namespace octet::cuda {
namespace {

constexpr int kChunk = kThreads * kEight * 4;  // elements that a block reads at once
constexpr int kAmaxOperands = 16;              // of one launch
constexpr uint32_t kFlag = 0x80000000u;        // beside the bits of a magnitude
constexpr int kFlagOperands = 256;             // of one launch

struct AmaxSources {
  const void* x[kAmaxOperands];
  int64_t n[kAmaxOperands];
  int first_block[kAmaxOperands + 1];
  Dtype dtype[kAmaxOperands];
  bool aligned[kAmaxOperands];
};

struct AmaxTargets {
  uint32_t* partial;  // of this launch's blocks
  const uint32_t* all;
  int n_partial;  // of all launches together
  float* amax;
  bool* nonfinite;
};

__device__ __forceinline__ void join(uint32_t& top, uint32_t& flag, float x) {
  const uint32_t magnitude = __float_as_uint(x) & kF32Magnitude;
  const bool finite = magnitude < kF32Inf;
  top = max(top, finite ? magnitude : 0u);
  flag |= finite ? 0u : kFlag;
}

// The maximum and the flag of all threads, in thread 0.
__device__ uint32_t join_block(uint32_t top, uint32_t flag) {
  __shared__ uint32_t tops[32], flags[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  top = __reduce_max_sync(~0u, top);
  flag = __reduce_or_sync(~0u, flag);
  __syncthreads();  // all have read what a call before left
  if (lane == 0) {
    tops[warp] = top;
    flags[warp] = flag;
  }
  __syncthreads();
  if (warp != 0) return 0;
  const bool used = lane < static_cast<int>(blockDim.x) / 32;
  top = __reduce_max_sync(~0u, used ? tops[lane] : 0u);
  flag = __reduce_or_sync(~0u, used ? flags[lane] : 0u);
  return top | flag;
}

constexpr int kPacks = 4;  // eights of a thread

// The largest magnitude, as bits of f32; Inf's or more where one of them is not finite.
template <Dtype X>
__device__ __forceinline__ uint32_t magnitude_of(const Raw8 (&raw)[kPacks], Dtype dtype) {
  uint32_t top = 0;
  if constexpr (X == Dtype::bf16) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(0.0f, 0.0f);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const uint32_t words[4] = {raw[p].part[0].x, raw[p].part[0].y, raw[p].part[0].z,
                                 raw[p].part[0].w};
#pragma unroll
      for (int k = 0; k < 4; ++k)
        pair = __hmax2_nan(pair, __habs2(*reinterpret_cast<const __nv_bfloat162*>(words + k)));
    }
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(&pair);
    top = max(bits << 16, bits & 0xFFFF0000u);
  } else {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float v[8];
      widen8(raw[p], dtype, v);
#pragma unroll
      for (int j = 0; j < 8; ++j) top = max(top, __float_as_uint(v[j]) & kF32Magnitude);
    }
  }
  return top;
}

// One element of any type; a flag that is set counts as Inf.
__device__ __forceinline__ float load_operand(const void* x, int64_t i, Dtype dtype) {
  if (dtype != Dtype::boolean) return load_wide(x, i, dtype);
  return static_cast<const uint8_t*>(x)[i] != 0 ? __uint_as_float(kF32Inf) : 0.0f;
}

// The last block of all joins what they found; they count themselves in a word that is 0 again
// then: kernels of a process follow each other.
__device__ void end_amax(const AmaxTargets& to, uint32_t top, uint32_t flag) {
  static unsigned int n_ended = 0;
  __shared__ bool last;
  const uint32_t mine = join_block(top, flag);
  if (threadIdx.x == 0) {
    to.partial[blockIdx.x] = mine;
    __threadfence();
    const auto end = static_cast<unsigned>(to.n_partial) - 1;
    last = atomicInc(&n_ended, end) == end;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  top = flag = 0;
  for (int i = threadIdx.x; i < to.n_partial; i += kThreads) {
    const uint32_t partial = __ldcg(to.all + i);
    top = max(top, partial & kF32Magnitude);
    flag |= partial & kFlag;
  }
  const uint32_t joined = join_block(top, flag);
  if (threadIdx.x != 0) return;
  *to.amax = __uint_as_float(joined & kF32Magnitude);
  *to.nonfinite = (joined & kFlag) != 0;
}

template <Dtype X>
__global__ void __launch_bounds__(kThreads, X == Dtype::real ? 4 : 8)
    amax_blocks(const __grid_constant__ AmaxSources s, const __grid_constant__ AmaxTargets to) {
  int k = 0;
  while (static_cast<int>(blockIdx.x) >= s.first_block[k + 1]) ++k;
  const void* x = s.x[k];
  const Dtype dtype = s.dtype[k];
  const int64_t n = s.n[k];
  const int n_blocks = s.first_block[k + 1] - s.first_block[k];
  const int block = static_cast<int>(blockIdx.x) - s.first_block[k];
  uint32_t top = 0, flag = 0;
  // From the end: what was written last is still in the cache, and what is read last will be when
  // the quantizer begins.
  const int64_t last = (n - 1) / kChunk * kChunk;
  for (int64_t base = last - int64_t{block} * kChunk; base >= 0;
       base -= int64_t{n_blocks} * kChunk) {
    if (s.aligned[k] && base + kChunk <= n) {
      Raw8 raw[kPacks];
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
        raw[p] = load_raw8(x, base + (p * kThreads + threadIdx.x) * kEight, known(X, dtype));
      const uint32_t magnitude = magnitude_of<X>(raw, known(X, dtype));
      if (magnitude < kF32Inf) {
        top = max(top, magnitude);
        continue;
      }
    }
    for (int64_t i = base + threadIdx.x; i < min(n, base + kChunk); i += kThreads)
      join(top, flag, load_operand(x, i, dtype));
  }
  end_amax(to, top, flag);
}

class AmaxKernel : public Prepared {
 public:
  explicit AmaxKernel(const Request& request) {
    const auto tail = request.tail<AmaxParams>();
    for (size_t i = 0; i + 1 < tail.size(); i += 2) {
      n_.push_back(tail[i]);
      dtypes_.push_back(static_cast<Dtype>(tail[i + 1]));
      n_blocks_ += blocks_of(tail[i]);
      if (tail[i] <= 1) continue;  // read as what it is
      alike_ = alike_ && (common_ == Dtype::real || dtypes_.back() == common_);
      common_ = dtypes_.back();
    }
    if (common_ == Dtype::real) common_ = Dtype::f32;
  }

  void launch(const Launch& args) override {
    auto* partial = static_cast<uint32_t*>(args.scratch);
    AmaxTargets to{partial, partial, n_blocks_, args.out<float>(0), args.out<bool>(1)};
    for (size_t first = 0; first < n_.size(); first += kAmaxOperands) {
      const AmaxSources s = sources(args, first);
      const int n_blocks = s.first_block[kAmaxOperands];
      visit_common(common_, alike_, [&]<Dtype X>() {
        amax_blocks<X><<<n_blocks, kThreads, 0, args.stream>>>(s, to);
      });
      to.partial += n_blocks;
    }
    check_launch("amax");
  }

 private:
  // An empty operand has a block too, which finds nothing.
  static int blocks_of(int64_t n) {
    return static_cast<int>(std::clamp<int64_t>(ceil_div(n, kChunk), 1, kAmaxBlocks));
  }
  AmaxSources sources(const Launch& args, size_t first) const {
    AmaxSources s{};
    for (size_t k = 0; k < kAmaxOperands; ++k) {
      const size_t i = first + k;
      const bool used = i < n_.size();
      s.n[k] = used ? n_[i] : 0;
      s.x[k] = used ? args.operands[i] : nullptr;
      s.dtype[k] = used ? dtypes_[i] : Dtype::f32;
      s.aligned[k] = is_aligned(s.x[k], 16);
      s.first_block[k + 1] = s.first_block[k] + (used ? blocks_of(s.n[k]) : 0);
    }
    return s;
  }
  std::vector<int64_t> n_;
  std::vector<Dtype> dtypes_;
  int n_blocks_ = 0;
  Dtype common_ = Dtype::real;  // of all operands of more than one element, unless not alike
  bool alike_ = true;
};

struct Flags {
  const uint8_t* x[kFlagOperands];
  int64_t n[kFlagOperands];
  int count;
  bool joins;  // the result's own value takes part
};

__global__ void __launch_bounds__(kThreads)
    any_flags(const __grid_constant__ Flags flags, bool* result) {
  int any = threadIdx.x == 0 && flags.joins && *result;
  for (int k = threadIdx.x; k < flags.count; k += kThreads) {
    for (int64_t i = 0; i < flags.n[k]; ++i) any |= flags.x[k][i] != 0;
  }
  any = __syncthreads_or(any);  // all have read before the result, maybe an operand, is written
  if (threadIdx.x == 0) *result = any != 0;
}

class AnyOfKernel : public Prepared {
 public:
  explicit AnyOfKernel(const Request& request) {
    const auto tail = request.tail<AnyOfParams>();
    n_.assign(tail.begin(), tail.end());
  }
  void launch(const Launch& args) override {
    for (size_t first = 0; first < n_.size(); first += kFlagOperands) {
      Flags flags{};
      flags.count = static_cast<int>(std::min<size_t>(n_.size() - first, kFlagOperands));
      flags.joins = first > 0;
      for (int k = 0; k < flags.count; ++k) {
        flags.x[k] = args.in<uint8_t>(static_cast<int>(first) + k);
        flags.n[k] = n_[first + static_cast<size_t>(k)];
      }
      any_flags<<<1, kThreads, 0, args.stream>>>(flags, args.out<bool>(0));
    }
    check_launch("any_of");
  }

 private:
  std::vector<int64_t> n_;
};

// The history moves by one place in steps of a block; a step writes only what it has read.
__global__ void __launch_bounds__(kThreads)
    scale_of_amax(ScaleParams p, const float* amax, const float* history, float* scale,
                  float* next) {
  const float now = *amax;
  uint32_t top = 0;
  for (int64_t i = threadIdx.x; i < p.history; i += kThreads)
    top = max(top, __float_as_uint(history[i] > 0 ? history[i] : 0.0f));
  const float largest = __uint_as_float(join_block(top, 0));
  if (threadIdx.x == 0) *scale = tensor_scale(largest > 0 ? largest : now, 1.0f / p.target);
  for (int64_t base = 0; base < p.history; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    const float moved = i + 1 < p.history ? history[i + 1] : now;
    __syncthreads();
    if (i < p.history) next[i] = moved;
  }
}

void run_scale(const ScaleParams& p, const Launch& args) {
  const bool delayed = p.history > 0;
  scale_of_amax<<<1, kThreads, 0, args.stream>>>(
      p, args.in<float>(0), delayed ? args.in<float>(1) : nullptr, args.out<float>(0),
      delayed ? args.out<float>(1) : nullptr);
  check_launch("quant_scale");
}

}  // namespace

std::unique_ptr<Prepared> prepare_amax(const Request& request) {
  return std::make_unique<AmaxKernel>(request);
}
std::unique_ptr<Prepared> prepare_any_of(const Request& request) {
  return std::make_unique<AnyOfKernel>(request);
}
std::unique_ptr<Prepared> prepare_scale(const Request& request) {
  return stateless<ScaleParams, run_scale>(request);
}

}  // namespace octet::cuda
