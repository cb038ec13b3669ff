// Rotary position embedding. A block takes as many rows at a time as its threads can make angles
// for, one each, while the first elements are on their way.
#include <algorithm>
#include <cstring>

#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/rotation.cuh"
#include "backends/cuda/kernels/common/row_amax.cuh"
#include "backends/cuda/kernels/common/row_launch.cuh"
#include "backends/cuda/launch/join.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 4;
static_assert(kMaxRopePairs == kThreads);

// Queries or keys.
struct RopeSide {
  Unquantized x, y;
  const int32_t* positions = nullptr;
  int64_t rows = 0;
  int heads = 1;
};
struct RopeArgs {
  Parts<RopeSide> sides;
  int half = 1;
  int rows_per_block = 1;
  float sign = 1;  // of the sine: -1 rotates back
  AmaxArgs amax;
  double frequency[kMaxRopePairs] = {};
};

// Eight pairs of bf16 or fp16 at a time.
struct Pairs {
  uint4 low, high;
};
// Rotations of two neighbouring pairs.
struct TwoRotations {
  Rotation even, odd;
};
constexpr int kTwos = 4;

template <Dtype D>
__device__ __forceinline__ Pairs rotated(const TwoRotations (&rotations)[kTwos], const Pairs& x) {
  const uint32_t low[kTwos] = {x.low.x, x.low.y, x.low.z, x.low.w};
  const uint32_t high[kTwos] = {x.high.x, x.high.y, x.high.z, x.high.w};
  uint32_t out_low[kTwos], out_high[kTwos];
#pragma unroll
  for (int k = 0; k < kTwos; ++k) {
    float u[2], v[2];
    unpack_pair<D>(low[k], u);
    unpack_pair<D>(high[k], v);
    const float2 a = rotated(rotations[k].even, u[0], v[0]),
                 b = rotated(rotations[k].odd, u[1], v[1]);
    out_low[k] = pack_pair<D>(a.x, b.x);
    out_high[k] = pack_pair<D>(a.y, b.y);
  }
  return {make_uint4(out_low[0], out_low[1], out_low[2], out_low[3]),
          make_uint4(out_high[0], out_high[1], out_high[2], out_high[3])};
}

// A block takes rows_per_block rows at a time, `half` threads each: eight heads side by side, eight
// pairs a thread. A thread stays with its row's pairs over the heads, so that it reads their
// rotations once, and kBatch heads are on their way while it rotates those before, the next row's
// too.
constexpr int kSideBySide = 8;
constexpr int kBatch = 2;

struct Spot {
  int row, i;      // of a block's rows; the pair whose rotation the thread makes
  int head, pair;  // the first of those it rotates
  int made_at;     // where its rotation lies

  __device__ __forceinline__ explicit Spot(int half) {
    const int thread = static_cast<int>(threadIdx.x), per_head = half / 8;
    row = thread / half, i = thread - row * half;
    head = i / per_head, pair = (i - head * per_head) * 8;
    made_at = row * half + twos_at(half, i / 8, i / 2 % kTwos) * 2 + i % 2;
  }
  // The k-th two of the rotations of eight pairs, within a row's: threads side by side read side by
  // side.
  static __device__ __forceinline__ int twos_at(int half, int eight, int k) {
    return k * (half / 8) + eight;
  }
  // Threads behind the last whole row read what they do not use.
  __device__ __forceinline__ void read(int half, const Rotation* rotations,
                                       TwoRotations (&to)[kTwos]) const {
    const int of = kThreads % half == 0 || row < kThreads / half ? row : 0;
    const auto* twos = reinterpret_cast<const float4*>(rotations + of * half);
#pragma unroll
    for (int k = 0; k < kTwos; ++k) {
      const float4 t = twos[twos_at(half, pair / 8, k)];
      to[k] = {{t.x, t.y}, {t.z, t.w}};
    }
  }
};

__device__ __forceinline__ void load_pairs(const uint16_t* from, int half, Pairs& to) {
  to.low = __ldcs(reinterpret_cast<const uint4*>(from));
  to.high = __ldcs(reinterpret_cast<const uint4*>(from + half));
}
template <Dtype D>
__device__ __forceinline__ void store_pairs(uint16_t* to, int half, const Pairs& from,
                                            LargestWritten& largest) {
  // Not plain stores, which the compiler takes apart into words here.
  __stcg(reinterpret_cast<uint4*>(to), from.low);
  __stcg(reinterpret_cast<uint4*>(to + half), from.high);
  if (!largest.wanted) return;
  const uint32_t words[8] = {from.low.x,  from.low.y,  from.low.z,  from.low.w,
                             from.high.x, from.high.y, from.high.z, from.high.w};
  largest.add_written<D>(words);
}

// kHalf: pairs of a head, so that places are known when this is compiled; 0: any multiple of 8.
template <Dtype D, int kHalf>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    rope_short(const __grid_constant__ RopeArgs a) {
  // Two: who makes the next rotations may be a barrier ahead of who reads the last.
  __shared__ __align__(16) Rotation rotations[2][kThreads];
  wait_for_previous();
  start_next();
  LargestWritten largest(a.amax);
  const PartBlock here = part_of_block(a.sides);
  const RopeSide& side = a.sides.of[here.part];
  const int64_t rows = side.rows;
  const int heads = side.heads;
  const int half = kHalf != 0 ? kHalf : a.half, n_rows = kThreads / half;
  const Spot spot(half);
  // Heads of a row from this thread's first on.
  const int mine = spot.row < n_rows ? heads - spot.head : 0;
  const double frequency = spot.row < n_rows ? a.frequency[spot.i] : 0;
  const int64_t stride = static_cast<int64_t>(here.n_blocks) * n_rows;
  const int step = kSideBySide * 2 * half, cols = heads * 2 * half;
  const auto* x = static_cast<const uint16_t*>(side.x.data);
  auto* y = static_cast<uint16_t*>(side.y.data);
  int64_t row0 = static_cast<int64_t>(here.block) * n_rows;
  int64_t at = (row0 + spot.row) * cols + spot.head * (2 * half) + spot.pair;
  const int64_t to_next_row =
      stride * cols - (heads - 1) / (kBatch * kSideBySide) * (kBatch * step);
  int left = row0 + spot.row < rows ? mine : 0;
  Pairs pairs[kBatch];
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    if (left > k * kSideBySide) load_pairs(x + at + k * step, half, pairs[k]);
  }
  int position = row0 + spot.row < rows ? side.positions[row0 + spot.row] : 0;
  for (int parity = 0; row0 < rows; row0 += stride, parity ^= 1) {
    if (spot.row < n_rows) rotations[parity][spot.made_at] = rotation(position, frequency, a.sign);
    const bool next_row = row0 + stride + spot.row < rows;
    if (next_row) position = side.positions[row0 + stride + spot.row];
    __syncthreads();
    TwoRotations twos[kTwos];
    spot.read(half, rotations[parity], twos);
    for (int begin = 0; begin < heads; begin += kBatch * kSideBySide) {
      const bool last = begin + kBatch * kSideBySide >= heads;
      const int64_t next = at + (last ? to_next_row : kBatch * step);
      const int next_left = !last ? left - kBatch * kSideBySide : next_row ? mine : 0;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (left > k * kSideBySide)
          store_pairs<D>(y + at + k * step, half, rotated<D>(twos, pairs[k]), largest);
        if (next_left > k * kSideBySide) load_pairs(x + next + k * step, half, pairs[k]);
      }
      at = next, left = next_left;
    }
  }
  if (largest.wanted) end_amax(a.amax, largest.all());
}

// rotations[r * half + i] for the block's rows.
__device__ __forceinline__ void make_rotations(const RopeArgs& a, const RopeSide& side,
                                               int64_t row0, Rotation* rotations) {
  const int r = static_cast<int>(threadIdx.x) / a.half, i = static_cast<int>(threadIdx.x) % a.half;
  if (r >= a.rows_per_block || row0 + r >= side.rows) return;
  rotations[threadIdx.x] = rotation(side.positions[row0 + r], a.frequency[i], a.sign);
}

__global__ void __launch_bounds__(kThreads) rope_any(const __grid_constant__ RopeArgs a) {
  __shared__ Rotation rotations[kThreads];
  Largest largest;
  const PartBlock here = part_of_block(a.sides);
  const RopeSide& side = a.sides.of[here.part];
  const int64_t stride = static_cast<int64_t>(here.n_blocks) * a.rows_per_block;
  for (int64_t row0 = static_cast<int64_t>(here.block) * a.rows_per_block; row0 < side.rows;
       row0 += stride) {
    const int64_t left = side.rows - row0;
    const int n_rows = left < a.rows_per_block ? static_cast<int>(left) : a.rows_per_block;
    __syncthreads();  // all have read the rotations before
    make_rotations(a, side, row0, rotations);
    __syncthreads();
    const int n = n_rows * side.heads * a.half;
    for (int task = threadIdx.x; task < n; task += kThreads) {
      const int head = task / a.half, i = task % a.half;
      const int64_t at = (row0 * side.heads + head) * (2 * a.half) + i;
      const float low = load_any(side.x.data, side.x.dtype, at);
      const float high = load_any(side.x.data, side.x.dtype, at + a.half);
      const float2 out = rotated(rotations[head / side.heads * a.half + i], low, high);
      store_any(side.y, at, out.x);
      store_any(side.y, at + a.half, out.y);
      largest.add(as_written(side.y.dtype, out.x));
      largest.add(as_written(side.y.dtype, out.y));
    }
  }
  if (a.amax.partial != nullptr) end_amax(a.amax, largest);
}

class Rope : public RopeKernel {
 public:
  explicit Rope(const Request& request) : params_(request.get<RopeParams>()) {
    const auto bits = request.tail<RopeParams>();
    args_.half = params_.head_dim / 2;
    if (args_.half > kMaxRopePairs || bits.size() != static_cast<size_t>(args_.half))
      throw ModuleError("[cuda] rope: expected a frequency for each pair of a head");
    std::memcpy(args_.frequency, bits.data(), bits.size_bytes());
    args_.sign = params_.inverse ? -1.0f : 1.0f;
    args_.rows_per_block = kThreads / args_.half;
  }

  RopeStep step_of(const Launch& launch) const override {
    return {.x = operand_of(params_.x, launch).data,
            .y = result_of(params_.y, launch).data,
            .positions = launch.in<int32_t>(1),
            .frequencies = {args_.frequency, static_cast<size_t>(args_.half)}};
  }
  // True if one kernel rotates both.
  bool goes_with(const Rope& other) const {
    return args_.half == other.args_.half && args_.sign == other.args_.sign &&
           std::ranges::equal(args_.frequency, other.args_.frequency) &&
           params_.x.dtype == other.params_.x.dtype && params_.y.dtype == other.params_.y.dtype &&
           params_.amax.amax_at == kAbsent && params_.rows > 0;
  }
  void launch(const Launch& launch) override {
    args_.amax = amax_of(params_.amax, launch);
    if (params_.rows == 0 && args_.amax.partial == nullptr) return;
    args_.sides = {};
    add_to(args_.sides, launch);
    rotate(launch.stream);
  }
  void launch_joined(std::span<const Joined> all) override {
    const auto sides = join_parts<RopeSide>(*this, all);
    if (!sides) return Prepared::launch_joined(all);
    args_.amax = {};
    args_.sides = *sides;
    rotate(all[0].args.stream);
  }
  void add_to(Parts<RopeSide>& sides, const Launch& launch) const {
    const int64_t n_pieces = ceil_div(params_.rows, args_.rows_per_block);
    sides.add({.x = operand_of(params_.x, launch),
               .y = result_of(params_.y, launch),
               .positions = launch.in<int32_t>(1),
               .rows = params_.rows,
               .heads = params_.heads},
              static_cast<unsigned>(wave_blocks(n_pieces, kBlocksPerSm, launch.n_sm)));
  }

 private:
  void rotate(cudaStream_t stream) const {
    const unsigned grid = args_.sides.n_blocks();
    const Dtype dtype = params_.x.dtype;
    if (params_.is_any) {
      rope_any<<<grid, kThreads, 0, stream>>>(args_);
    } else if (dtype == Dtype::bf16) {
      rotate_short<Dtype::bf16>(grid, stream);
    } else {
      rotate_short<Dtype::fp16>(grid, stream);
    }
    check_launch("rope");
  }
  template <Dtype D>
  void rotate_short(unsigned grid, cudaStream_t stream) const {
    const auto kernel = args_.half == 64 ? rope_short<D, 64> : rope_short<D, 0>;
    if (params_.rows <= kMaxEarlyRows) {
      launch_early(kernel, {grid, kThreads}, stream, args_);
    } else {
      kernel<<<grid, kThreads, 0, stream>>>(args_);
    }
  }

  RopeParams params_;
  RopeArgs args_;
};

std::unique_ptr<Prepared> prepare_rope(const Request& request) {
  return std::make_unique<Rope>(request);
}

const KernelEntry kRows[] = {{KernelId::rope, prepare_rope}};

}  // namespace

std::span<const KernelEntry> rope_kernels() {
  return kRows;
}

}  // namespace octet::cuda
