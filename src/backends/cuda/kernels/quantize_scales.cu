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
  uint32_t* partial;
  float* amax;  // given where one block reads everything
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

__device__ void write_amax(const AmaxTargets& to, uint32_t joined) {
  *to.amax = __uint_as_float(joined & kF32Magnitude);
  *to.nonfinite = (joined & kFlag) != 0;
}

template <Dtype X>
__global__ void __launch_bounds__(kThreads, X == Dtype::real ? 4 : 8)
    amax_blocks(const __grid_constant__ AmaxSources s, const __grid_constant__ AmaxTargets to) {
  int k = 0;
  while (static_cast<int>(blockIdx.x) >= s.first_block[k + 1]) ++k;
  const void* x = s.x[k];
  const Dtype dtype = known(X, s.dtype[k]);
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
      Raw8 raw[4];
#pragma unroll
      for (int p = 0; p < 4; ++p)
        raw[p] = load_raw8(x, base + (p * kThreads + threadIdx.x) * kEight, dtype);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        float v[8];
        widen8(raw[p], dtype, v);
#pragma unroll
        for (int j = 0; j < 8; ++j) join(top, flag, v[j]);
      }
    } else {
      for (int64_t i = base + threadIdx.x; i < min(n, base + kChunk); i += kThreads)
        join(top, flag, load_wide(x, i, dtype));
    }
  }
  const uint32_t joined = join_block(top, flag);
  if (threadIdx.x != 0) return;
  if (to.amax != nullptr) return write_amax(to, joined);
  to.partial[blockIdx.x] = joined;
}

__global__ void __launch_bounds__(1024)
    amax_join(const __grid_constant__ AmaxTargets to, int n_partial) {
  uint32_t top = 0, flag = 0;
  for (int i = threadIdx.x; i < n_partial; i += blockDim.x) {
    top = max(top, to.partial[i] & kF32Magnitude);
    flag |= to.partial[i] & kFlag;
  }
  const uint32_t joined = join_block(top, flag);
  if (threadIdx.x == 0) write_amax(to, joined);
}

class AmaxKernel : public Prepared {
 public:
  explicit AmaxKernel(const Request& request) {
    const auto tail = request.tail<AmaxParams>();
    for (size_t i = 0; i + 1 < tail.size(); i += 2) {
      n_.push_back(tail[i]);
      dtypes_.push_back(static_cast<Dtype>(tail[i + 1]));
      n_blocks_ += blocks_of(tail[i]);
      alike_ = alike_ && dtypes_.back() == dtypes_.front();
    }
  }

  void launch(const Launch& args) override {
    AmaxTargets to{static_cast<uint32_t*>(args.scratch), args.out<float>(0), args.out<bool>(1)};
    if (n_blocks_ > 1) to.amax = nullptr;
    for (size_t first = 0; first < n_.size(); first += kAmaxOperands) {
      const AmaxSources s = sources(args, first);
      const int n_blocks = s.first_block[kAmaxOperands];
      visit_common(dtypes_[0], alike_, [&]<Dtype X>() {
        if (n_blocks > 0) amax_blocks<X><<<n_blocks, kThreads, 0, args.stream>>>(s, to);
      });
      to.partial += n_blocks;
    }
    to = {static_cast<uint32_t*>(args.scratch), args.out<float>(0), args.out<bool>(1)};
    if (n_blocks_ != 1) amax_join<<<1, 1024, 0, args.stream>>>(to, n_blocks_);
    check_launch("amax");
  }

 private:
  static int blocks_of(int64_t n) {
    return static_cast<int>(std::min(ceil_div(n, kChunk), kAmaxBlocks));
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
      s.first_block[k + 1] = s.first_block[k] + blocks_of(s.n[k]);
    }
    return s;
  }
  std::vector<int64_t> n_;
  std::vector<Dtype> dtypes_;
  int n_blocks_ = 0;
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
