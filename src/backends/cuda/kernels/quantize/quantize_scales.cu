// amax, any_of, and the scales made from amax, with codes or without: params/quantize.h.
#include <algorithm>
#include <span>
#include <vector>

#include "backends/cuda/kernels/quantize/quantize_source.cuh"
#include "backends/cuda/launch/join.h"
#include "formats/periodic_scale.h"

namespace octet::cuda {
namespace {

constexpr int kPacks = 4;                           // eights of a thread
constexpr int kChunk = kThreads * kEight * kPacks;  // elements that a block reads at once

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
  unsigned int* n_ended;
  ScaleSource results;
  bool leaves_first;
};

// One element of any type; a flag that is set counts as Inf.
__device__ __forceinline__ float load_operand(const void* x, int64_t i, Dtype dtype) {
  if (dtype != Dtype::boolean) return load_float(x, i, dtype);
  return static_cast<const uint8_t*>(x)[i] != 0 ? __uint_as_float(kF32Inf) : 0.0f;
}

// The last block of all joins what they found.
__device__ void end_amax(const AmaxTargets& to, const Magnitude& found) {
  __shared__ bool last;
  const uint32_t mine = join_block(found);
  if (threadIdx.x == 0) {
    to.partial[blockIdx.x] = mine;
    last = count_block(to.n_ended, static_cast<unsigned>(to.n_partial));
  }
  __syncthreads();
  if (!last) return;
  Magnitude all;
  for (int i = threadIdx.x; i < to.n_partial; i += kThreads) all.join_bits(__ldcg(to.all + i));
  __shared__ uint32_t joined;
  const uint32_t mine_of_all = join_block(all);
  if (threadIdx.x == 0) joined = mine_of_all;
  __syncthreads();
  Magnitude now;
  now.join_bits(joined);
  to.results.write(now, largest_of(to.results.history, to.results.n_history));
}

// True if the history gives the scale, and the amax is the quantizer's.
__device__ bool leaves_amax(const AmaxSources& s, const AmaxTargets& to) {
  if (!to.leaves_first) return false;
  const float largest = largest_of(to.results.history, to.results.n_history);
  if (largest == 0) return false;
  if (blockIdx.x != 0) return true;
  Magnitude rest;
  for (int k = 1; k < kAmaxOperands; ++k) {
    if (s.n[k] == 1) rest.join(load_operand(s.x[k], 0, s.dtype[k]));
  }
  to.results.write(rest, largest);
  return true;
}

template <Dtype X>
__global__ void __launch_bounds__(kThreads, X == Dtype::real ? 4 : 8)
    amax_blocks(const __grid_constant__ AmaxSources s, const __grid_constant__ AmaxTargets to) {
  if (leaves_amax(s, to)) return;
  int k = 0;
  while (static_cast<int>(blockIdx.x) >= s.first_block[k + 1]) ++k;
  const void* x = s.x[k];
  const Dtype dtype = s.dtype[k];
  const int64_t n = s.n[k];
  const int n_blocks = s.first_block[k + 1] - s.first_block[k];
  const int block = static_cast<int>(blockIdx.x) - s.first_block[k];
  Magnitude found;
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
        found.top = max(found.top, magnitude);
        continue;
      }
    }
    for (int64_t i = base + threadIdx.x; i < min(n, base + kChunk); i += kThreads)
      found.join(load_operand(x, i, dtype));
  }
  end_amax(to, found);
}

// The amax of several operands, over as many launches as their number needs.
class AmaxLaunches {
 public:
  explicit AmaxLaunches(std::span<const int64_t> sizes_and_dtypes);
  // leaves_first: where the history gives the scale, the quantizer finds the amax of the first
  // operand as it reads it: that one is left out then, and the rest are scalars of one launch.
  void launch(const Launch& args, void* const* operands, const ScaleSource& results,
              bool leaves_first = false) const;

 private:
  static int blocks_of(int64_t n);
  std::vector<int64_t> n_;
  std::vector<Dtype> dtypes_;
  int n_blocks_ = 0;
  Dtype common_ = Dtype::real;  // of all operands of more than one element, unless not alike
  bool alike_ = true;
};

AmaxLaunches::AmaxLaunches(std::span<const int64_t> sizes_and_dtypes) {
  for (size_t i = 0; i + 1 < sizes_and_dtypes.size(); i += 2) {
    const int64_t n = sizes_and_dtypes[i];
    n_.push_back(n);
    dtypes_.push_back(static_cast<Dtype>(sizes_and_dtypes[i + 1]));
    n_blocks_ += blocks_of(n);
    if (n <= 1) continue;  // read as what it is
    alike_ = alike_ && (common_ == Dtype::real || dtypes_.back() == common_);
    common_ = dtypes_.back();
  }
  if (common_ == Dtype::real) common_ = Dtype::f32;
}

void AmaxLaunches::launch(const Launch& args, void* const* operands, const ScaleSource& results,
                          bool leaves_first) const {
  auto* partial = static_cast<uint32_t*>(args.scratch);
  AmaxTargets to{partial, partial, n_blocks_, args.counters, results, leaves_first};
  for (size_t first = 0; first < n_.size(); first += kAmaxOperands) {
    AmaxSources s{};
    for (size_t k = 0; k < kAmaxOperands; ++k) {
      const size_t i = first + k;
      const bool used = i < n_.size();
      s.n[k] = used ? n_[i] : 0;
      s.x[k] = used ? operands[i] : nullptr;
      s.dtype[k] = used ? dtypes_[i] : Dtype::f32;
      s.aligned[k] = is_aligned(s.x[k], 16);
      s.first_block[k + 1] = s.first_block[k] + (used ? blocks_of(s.n[k]) : 0);
    }
    const int n_blocks = s.first_block[kAmaxOperands];
    visit_common(common_, alike_,
                 [&]<Dtype X>() { amax_blocks<X><<<n_blocks, kThreads, 0, args.stream>>>(s, to); });
    to.partial += n_blocks;
  }
  check_launch("amax");
}

// An empty operand has a block too, which finds nothing.
int AmaxLaunches::blocks_of(int64_t n) {
  return static_cast<int>(std::clamp<int64_t>(ceil_div(n, kChunk), 1, kAmaxBlocks));
}

class AmaxKernel : public Prepared {
 public:
  explicit AmaxKernel(const Request& request) : launches_(request.tail<AmaxParams>()) {}
  void launch(const Launch& args) override {
    launches_.launch(args, args.operands,
                     {.amax = args.out<float>(0), .nonfinite = args.out<uint8_t>(1)});
  }

 private:
  AmaxLaunches launches_;
};

// An amax that is not known has a launch before: with a history that holds anything it leaves x
// to the quantizer, which finds its amax as it reads it.
class AmaxQuantize : public Prepared {
 public:
  explicit AmaxQuantize(const Request& request)
      : p_(request.get<AmaxQuantizeParams>()), amax_(request.tail<AmaxQuantizeParams>()) {}

  void launch(const Launch& args) override {
    const bool delayed = p_.n_history > 0;
    ScaleSource scale{.n_history = p_.n_history,
                      .inv_target = 1.0f / p_.target,
                      .scale = args.out<float>(1),
                      .nonfinite = args.out<uint8_t>(2)};
    if (delayed) {
      scale.history = args.in<float>(1);
      scale.next_history = args.out<float>(3);
    }
    if (p_.known) {
      scale.from = ScaleFrom::known;
      scale.known_amax = args.in<float>(2);
    } else {
      const bool joins = p_.measures && delayed;
      void* operands[1 + kMaxMaxima];
      int n = 0;
      if (p_.measures) operands[n++] = args.operands[0];
      for (int i = 0; i < p_.n_maxima; ++i) operands[n++] = args.operands[2 + i];
      amax_.launch(args, operands, scale, joins);
      scale.from = joins ? ScaleFrom::joined : ScaleFrom::given;
      scale.given = scale.scale;
    }
    launch_quantize(p_.quantize, scale, args, p_.transposed_at);
  }

 private:
  AmaxQuantizeParams p_;
  AmaxLaunches amax_;
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

struct ScalePart {
  ScaleParams p;
  const float *amax, *history;
  float *scale, *next;
};

// A block a scale. The history moves by one place in steps of a block; a step writes only what it
// has read.
__global__ void __launch_bounds__(kThreads)
    scale_of_amax(const __grid_constant__ Parts<ScalePart> parts) {
  const ScalePart& of = parts.of[blockIdx.x];
  const int64_t n = of.p.history;
  const float now = *of.amax;
  Magnitude found;
  for (int64_t i = threadIdx.x; i < n; i += kThreads)
    found.top = max(found.top, __float_as_uint(of.history[i] > 0 ? of.history[i] : 0.0f));
  const float largest = __uint_as_float(join_block(found));
  if (threadIdx.x == 0) *of.scale = tensor_scale(largest > 0 ? largest : now, 1.0f / of.p.target);
  for (int64_t base = 0; base < n; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    const float moved = i + 1 < n ? of.history[i + 1] : now;
    __syncthreads();
    if (i < n) of.next[i] = moved;
  }
}

class ScaleKernel : public Prepared {
 public:
  explicit ScaleKernel(const Request& request) : p_(request.get<ScaleParams>()) {}
  bool goes_with(const ScaleKernel&) const { return true; }
  void launch(const Launch& args) override {
    Parts<ScalePart> scales;
    add_to(scales, args);
    make(scales, args.stream);
  }
  void launch_joined(std::span<const Joined> all) override {
    const auto scales = join_parts<ScalePart>(*this, all);
    if (!scales) return Prepared::launch_joined(all);
    make(*scales, all[0].args.stream);
  }
  void add_to(Parts<ScalePart>& scales, const Launch& args) const {
    const bool delayed = p_.history > 0;
    scales.add({.p = p_,
                .amax = args.in<float>(0),
                .history = delayed ? args.in<float>(1) : nullptr,
                .scale = args.out<float>(0),
                .next = delayed ? args.out<float>(1) : nullptr},
               1);
  }

 private:
  static void make(const Parts<ScalePart>& scales, cudaStream_t stream) {
    scale_of_amax<<<scales.n_blocks(), kThreads, 0, stream>>>(scales);
    check_launch("quant_scale");
  }

  ScaleParams p_;
};

__global__ void step_scale(PeriodicScaleParams p, const float* amax, const float* before,
                           float* scale) {
  *scale = periodic_scale(*before, *amax, p.target);
}

}  // namespace

std::unique_ptr<Prepared> prepare_amax(const Request& request) {
  return std::make_unique<AmaxKernel>(request);
}
std::unique_ptr<Prepared> prepare_any_of(const Request& request) {
  return std::make_unique<AnyOfKernel>(request);
}
std::unique_ptr<Prepared> prepare_scale(const Request& request) {
  return std::make_unique<ScaleKernel>(request);
}
std::unique_ptr<Prepared> prepare_amax_quantize(const Request& request) {
  return std::make_unique<AmaxQuantize>(request);
}

void run_periodic_scale(const PeriodicScaleParams& p, const Launch& args) {
  step_scale<<<1, 1, 0, args.stream>>>(p, args.in<float>(0), args.in<float>(1), args.out<float>(0));
  check_launch("periodic_scale");
}

}  // namespace octet::cuda
