// Products of 16-bit rows with E4M3 weights that stay codes in memory (weight-only quantization),
// of the texts that are decoded side by side: y = scale sum x w + c.
//
// A block makes 128 columns of y for all rows over a fourth of k, a slice; each of its warps 32
// columns, by tensor core instructions with the weights as their first factor. A weight is read
// from memory by one lane and widened once, exactly. Lane l takes the elements 16 (l % 4) to 16 (l
// % 4) + 15 of each 64 of k, in one access; instruction j of four multiplies the elements 4 j to 4
// j + 3 of each lane, so that no element changes its lane. Rows of x come through shared memory.
// Sums of a slice are one chain of instructions; the last block of a column's four adds the slices
// in their order. So neither the number of rows nor of columns changes a result.
#include "backends/cuda/kernels/common/async_copy.cuh"
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/row_access.cuh"
#include "backends/cuda/kernels/common/shared_memory.h"
#include "backends/cuda/kernels/common/tensor_core.cuh"
#include "backends/cuda/kernels/gemm/gemm.cuh"
#include "backends/cuda/launch/join.h"
#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpColumns = 32, kTiles = kWarpColumns / 16;
constexpr int kStages = 6;
constexpr int kRowLength = kWeightDepth + 8;  // of x in shared memory: eight rows lie in all banks

struct WeightOnly {
  const void *x, *w, *c;
  void* y;
  const float* scale;
  float4* slices;         // sums of [column tile][slice][element][thread]
  unsigned int* n_ended;  // of each column tile
  int m;
  int64_t n, k, slice;  // slice: of k
  bool reads_ahead;     // no kernel of the stream writes w
};

// What a step reads, as it lies in shared memory: of each thread sixteen weights in each of its
// columns, which are 16 t + l / 4 of tile t, then those 8 behind, and rows of x.
template <int R>
struct Stage {
  uint4 w[2 * kTiles][kThreads];
  uint16_t x[R * kRowLength];
};

// Where this thread reads its share of the block's first step: the weights that it multiplies
// itself, and some of x for all. In place of a column that is not there it reads the last, whose
// sums nobody stores; rows that are not there are zeros, as many blocks read x at once.
template <int R>
struct Sources {
  static constexpr int kPacks = kWeightDepth / 8, kRowsAtOnce = kThreads / kPacks;

  const uint8_t* w[2 * kTiles];
  const uint16_t* x;  // its first row's, and
  int64_t to_next;    // elements to its next one's
  int n_rows;         // that it reads

  __device__ __forceinline__ Sources(const WeightOnly& a, int64_t column, int64_t k, int lane) {
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int64_t own = min(column + 8 * i, a.n - 1);
      w[i] = static_cast<const uint8_t*>(a.w) + own * a.k + k + lane % 4 * 16;
    }
    const int row = static_cast<int>(threadIdx.x) / kPacks,
              at = static_cast<int>(threadIdx.x) % kPacks;
    x = static_cast<const uint16_t*>(a.x) + row * a.k + k + at * 8;
    to_next = kRowsAtOnce * a.k;
    n_rows = (a.m - row + kRowsAtOnce - 1) / kRowsAtOnce;
  }
  __device__ __forceinline__ void fetch_w(int step, Stage<R>& stage) const {
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i)
      fetch_along_row(&stage.w[i][threadIdx.x], w[i] + step * kWeightDepth);
  }
  __device__ __forceinline__ void fetch_x(int step, Stage<R>& stage) const {
    const int row = static_cast<int>(threadIdx.x) / kPacks,
              at = static_cast<int>(threadIdx.x) % kPacks;
    const uint16_t* from = x + step * kWeightDepth;
#pragma unroll
    for (int i = 0; i < R / kRowsAtOnce; ++i) {
      const bool there = i < n_rows;
      fetch_16_bytes(stage.x + (row + i * kRowsAtOnce) * kRowLength + at * 8,
                     there ? from + i * to_next : from, there);
    }
  }
};

__device__ __forceinline__ uint32_t word_of(const uint4& words, int j) {
  return j == 0 ? words.x : j == 1 ? words.y : j == 2 ? words.z : words.w;
}

template <Dtype X>
__device__ __forceinline__ void widen(uint32_t codes, uint32_t& low, uint32_t& high) {
  float v[4];
  widen_e4m3(codes, v);
  low = two_of<X>(v[0], v[1]);
  high = two_of<X>(v[2], v[3]);
}

// This step's products of the warp.
template <Dtype X, int R>
__device__ __forceinline__ void multiply(const Stage<R>& stage, int lane,
                                         float (&sums)[kTiles][R / 8][4]) {
  const uint16_t* x = stage.x + lane / 4 * kRowLength + lane % 4 * 16;
  uint4 w[2 * kTiles];
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) w[i] = stage.w[i][threadIdx.x];
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // two instructions' elements of a row: sixteen bytes
    uint32_t factors[2][kTiles][4];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        auto& factor = factors[j][i / 2];
        widen<X>(word_of(w[i], 2 * half + j), factor[i % 2], factor[2 + i % 2]);
      }
    }
    uint4 other[R / 8];
#pragma unroll
    for (int rows = 0; rows < R / 8; ++rows)
      other[rows] = *reinterpret_cast<const uint4*>(x + rows * 8 * kRowLength + 8 * half);
      // An instruction waits for the one before it on the same sums: those of all rows stand
      // between.
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int rows = 0; rows < R / 8; ++rows) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          multiply_add<X>(sums[t][rows], factors[j][t], j == 0 ? other[rows].x : other[rows].z,
                          j == 0 ? other[rows].y : other[rows].w);
        }
      }
    }
  }
}

// The four slices' sums, in their order.
template <int R>
__device__ __forceinline__ void add_slices(const float4* slices, float (&sums)[kTiles][R / 8][4]) {
  constexpr int kElements = kTiles * (R / 8);
#pragma unroll
  for (int i = 0; i < kWeightSlices; ++i) {
    const float4* at = slices + i * kElements * kThreads + threadIdx.x;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const float4 next = __ldcg(at + e * kThreads);
      auto& s = sums[e / (R / 8)][e % (R / 8)];
      s[0] = i == 0 ? next.x : s[0] + next.x;
      s[1] = i == 0 ? next.y : s[1] + next.y;
      s[2] = i == 0 ? next.z : s[2] + next.z;
      s[3] = i == 0 ? next.w : s[3] + next.w;
    }
  }
}

// y of what the sums of this lane are: rows 2 q and 2 q + 1 of each eight, columns g and g + 8 of
// each sixteen. y may be c: all of a tile is read before any of it is written.
template <Dtype Y, int R>
__device__ __forceinline__ void store(const WeightOnly& a, int64_t column, int lane,
                                      float (&sums)[kTiles][R / 8][4]) {
  const float scale = *a.scale;
  const auto visit = [&](int t, auto&& f) {
#pragma unroll
    for (int rows = 0; rows < R / 8; ++rows) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = rows * 8 + lane % 4 * 2 + i % 2;
        const int64_t own = column + t * 16 + i / 2 * 8;
        if (row < a.m && own < a.n) f(sums[t][rows][i], row * a.n + own);
      }
    }
  };
  const auto* c = static_cast<const Storage<Y>*>(a.c);
  auto* y = static_cast<Storage<Y>*>(a.y);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    visit(t, [&](float& sum, int64_t at) {
      sum *= scale;
      if (c != nullptr) sum += to_float<Y>(c[at]);
    });
    visit(t, [&](float sum, int64_t at) { y[at] = from_float<Y>(sum); });
  }
}

template <Dtype X, Dtype Y, int R>
__global__ void __launch_bounds__(kThreads, R == 64 ? 3 : 4)
    weight_only(const __grid_constant__ Parts<WeightOnly> products) {
  constexpr int kElements = kTiles * (R / 8);
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ bool is_last;
  auto* const stages = reinterpret_cast<Stage<R>*>(shared);
  const PartBlock mine = part_of_block(products);
  const WeightOnly& a = products.of[mine.part];
  const unsigned tile = mine.block / kWeightSlices, slice = mine.block % kWeightSlices;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t column = int64_t{tile} * kWeightColumns + warp * kWarpColumns + lane / 4;
  const int64_t first = slice * a.slice;
  const auto n_steps = static_cast<int>(max(int64_t{0}, min(a.slice, a.k - first)) / kWeightDepth);
  const Sources<R> sources(a, column, n_steps > 0 ? first : 0, lane);
  const auto fetch_w = [&](int step) {
    if (step < n_steps) sources.fetch_w(step, stages[step % kStages]);
  };
  const auto fetch_x = [&](int step) {
    if (step < n_steps) sources.fetch_x(step, stages[step % kStages]);
  };
  const auto read_ahead = [&] {
    for (int step = 0; step < kStages - 1; ++step) fetch_w(step);
    end_group();
  };
  if (a.reads_ahead) read_ahead();
  wait_for_previous();
  start_next();
  if (!a.reads_ahead) read_ahead();
  for (int step = 0; step < kStages - 1; ++step) {
    fetch_x(step);
    end_group();
  }
  float sums[kTiles][R / 8][4] = {};
  for (int step = 0; step < n_steps; ++step) {
    wait_for_groups_but<kStages - 2>();  // the weights of all first steps were one
    __syncthreads();
    fetch_w(step + kStages - 1);
    fetch_x(step + kStages - 1);
    end_group();
    multiply<X, R>(stages[step % kStages], lane, sums);
  }
  float4* const of_tile = a.slices + int64_t{tile} * kWeightSlices * kElements * kThreads;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const auto& s = sums[e / (R / 8)][e % (R / 8)];
    of_tile[(slice * kElements + e) * kThreads + threadIdx.x] = make_float4(s[0], s[1], s[2], s[3]);
  }
  __syncthreads();
  if (threadIdx.x == 0) is_last = count_block(a.n_ended + tile, kWeightSlices);
  __syncthreads();
  if (!is_last) return;
  add_slices<R>(of_tile, sums);
  store<Y, R>(a, column, lane, sums);
}

class WeightOnlyGemm : public Prepared {
 public:
  explicit WeightOnlyGemm(const GemmParams& p) : p_(p) {
    visit_kernel([](auto* kernel, size_t bytes) { allow_shared(kernel, bytes); });
  }

  // True if one kernel makes both.
  bool goes_with(const WeightOnlyGemm& other) const {
    return p_.a == other.p_.a && p_.y == other.p_.y && p_.m == other.p_.m;
  }
  void launch(const Launch& args) override {
    Parts<WeightOnly> products;
    add_to(products, args);
    launch_products(products, args.stream);
  }
  void launch_joined(std::span<const Joined> all) override {
    const auto products = join_parts<WeightOnly>(*this, all);
    if (!products) return Prepared::launch_joined(all);
    launch_products(*products, all[0].args.stream);
  }
  void add_to(Parts<WeightOnly>& products, const Launch& args) const {
    const WeightOnly a{.x = args.operands[GemmOperand::a],
                       .w = args.operands[GemmOperand::b],
                       .c = p_.has_c ? args.operands[GemmOperand::c] : nullptr,
                       .y = args.results[0],
                       .scale = args.in<float>(GemmOperand::scale_b),
                       .slices = static_cast<float4*>(args.scratch),
                       .n_ended = args.counters,
                       .m = static_cast<int>(p_.m),
                       .n = p_.n,
                       .k = p_.k,
                       .slice = weight_slice(p_.k),
                       .reads_ahead = p_.b_is_constant};
    products.add(a, static_cast<unsigned>(ceil_div(a.n, kWeightColumns) * kWeightSlices));
  }

 private:
  void launch_products(const Parts<WeightOnly>& products, cudaStream_t stream) const {
    visit_kernel([&](auto* kernel, size_t bytes) {
      launch_early(kernel, {products.n_blocks(), kThreads, bytes}, stream, products);
    });
  }
  // Calls f with the kernel and the bytes of its stages.
  template <typename F>
  void visit_kernel(F&& f) const {
    visit_high_precision(p_.y, [&]<Dtype Y>() {
      p_.a == Dtype::bf16 ? visit_rows<Dtype::bf16, Y>(f) : visit_rows<Dtype::fp16, Y>(f);
    });
  }
  template <Dtype X, Dtype Y, typename F>
  void visit_rows(F&& f) const {
    const int64_t rows = weight_rows(p_.m);
    if (rows == 16) return f(weight_only<X, Y, 16>, kStages * sizeof(Stage<16>));
    if (rows == 32) return f(weight_only<X, Y, 32>, kStages * sizeof(Stage<32>));
    f(weight_only<X, Y, 64>, kStages * sizeof(Stage<64>));
  }

  GemmParams p_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_weight_only(const GemmParams& p) {
  return std::make_unique<WeightOnlyGemm>(p);
}

}  // namespace octet::cuda
