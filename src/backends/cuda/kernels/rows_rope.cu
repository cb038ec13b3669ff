// Rotary position embedding. A block takes as many rows at a time as its threads can make angles
// for, one each, while the first elements are on their way.
#include <cstring>

#include "backends/cuda/kernels/rows_launch.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 4;
static_assert(kMaxRopePairs == kThreads);

struct RopeArgs {
  Wide x, y;
  const int32_t* positions = nullptr;
  int64_t rows = 0;
  int heads = 1, half = 1;
  int rows_per_block = 1;
  float sign = 1;  // of the sine: -1 turns back
  AmaxArgs amax;
  double frequency[kMaxRopePairs] = {};
};

struct Turn {
  float cosine, sine;
};

// turns[r * half + i] for the block's rows.
__device__ __forceinline__ void make_turns(const RopeArgs& a, int64_t row0, Turn* turns) {
  const int r = static_cast<int>(threadIdx.x) / a.half, i = static_cast<int>(threadIdx.x) % a.half;
  if (r >= a.rows_per_block || row0 + r >= a.rows) return;
  double sine, cosine;
  sincos(static_cast<double>(a.positions[row0 + r]) * a.frequency[i], &sine, &cosine);
  turns[threadIdx.x] = {static_cast<float>(cosine), a.sign * static_cast<float>(sine)};
}

__device__ __forceinline__ float2 turned(const Turn& turn, float low, float high) {
  return make_float2(fmaf(-high, turn.sine, low * turn.cosine),
                     fmaf(low, turn.sine, high * turn.cosine));
}

// Eight bf16 pairs at a time.
struct Pairs {
  uint4 low, high;
};

// Turns of two neighbouring pairs in one access.
__device__ __forceinline__ Pairs turned(const Turn* turns, const Pairs& x) {
  const auto* two = reinterpret_cast<const float4*>(turns);
  const uint32_t low[4] = {x.low.x, x.low.y, x.low.z, x.low.w};
  const uint32_t high[4] = {x.high.x, x.high.y, x.high.z, x.high.w};
  uint32_t out_low[4], out_high[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float u[2], v[2];
    unpack_bf16(low[k], u);
    unpack_bf16(high[k], v);
    const float4 t = two[k];
    const float2 a = turned(Turn{t.x, t.y}, u[0], v[0]), b = turned(Turn{t.z, t.w}, u[1], v[1]);
    out_low[k] = pack_bf16(a.x, b.x);
    out_high[k] = pack_bf16(a.y, b.y);
  }
  return {make_uint4(out_low[0], out_low[1], out_low[2], out_low[3]),
          make_uint4(out_high[0], out_high[1], out_high[2], out_high[3])};
}

constexpr int kBatch = 4;

// The rows from row0 on that a block takes at once. A thread keeps its place in the row from row to
// row, kBatch rows at a time.
__device__ __forceinline__ void turn_rows(const RopeArgs& a, int64_t row0, Turn* turns,
                                          StoredLargest& largest) {
  const int64_t left = a.rows - row0;
  const int n_rows = left < a.rows_per_block ? static_cast<int>(left) : a.rows_per_block;
  const int per_head = a.half / 8, per_row = a.heads * per_head, cols = per_row * 16;
  const auto* x = static_cast<const uint16_t*>(a.x.data) + row0 * cols;
  auto* y = static_cast<uint16_t*>(a.y.data) + row0 * cols;
  bool made = false;
  for (int begin = 0; begin < per_row; begin += kThreads) {
    const int task = begin + static_cast<int>(threadIdx.x), head = task / per_head;
    const int pair = (task - head * per_head) * 8, at = head * (2 * a.half) + pair;
    const bool active = task < per_row;
    for (int first = 0; first < n_rows; first += kBatch) {
      Pairs pairs[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (!active || first + k >= n_rows) continue;
        const auto* from = x + int64_t{first + k} * cols + at;
        pairs[k].low = *reinterpret_cast<const uint4*>(from);
        pairs[k].high = *reinterpret_cast<const uint4*>(from + a.half);
      }
      if (!made) {
        make_turns(a, row0, turns);
        __syncthreads();
        made = true;
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (!active || first + k >= n_rows) continue;
        const Pairs out = turned(turns + (first + k) * a.half + pair, pairs[k]);
        auto* to = y + int64_t{first + k} * cols + at;
        // Not plain stores, which the compiler takes apart into words here.
        __stcg(reinterpret_cast<uint4*>(to), out.low);
        __stcg(reinterpret_cast<uint4*>(to + a.half), out.high);
        if (!largest.wanted) continue;
        largest.add_pairs({out.low.x, out.low.y, out.low.z, out.low.w,  //
                           out.high.x, out.high.y, out.high.z, out.high.w});
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    rope_bf16(const __grid_constant__ RopeArgs a) {
  // Two: who makes the next turns may be a barrier ahead of who reads the last.
  __shared__ __align__(16) Turn turns[2][kThreads];
  StoredLargest largest(a.amax);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * a.rows_per_block;
  int parity = 0;
  for (int64_t row0 = static_cast<int64_t>(blockIdx.x) * a.rows_per_block; row0 < a.rows;
       row0 += stride, parity ^= 1)
    turn_rows(a, row0, turns[parity], largest);
  if (largest.wanted) end_amax(a.amax, largest.all());
}

__global__ void __launch_bounds__(kThreads) rope_any(const __grid_constant__ RopeArgs a) {
  __shared__ Turn turns[kThreads];
  Largest largest;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * a.rows_per_block;
  for (int64_t row0 = static_cast<int64_t>(blockIdx.x) * a.rows_per_block; row0 < a.rows;
       row0 += stride) {
    const int64_t left = a.rows - row0;
    const int n_rows = left < a.rows_per_block ? static_cast<int>(left) : a.rows_per_block;
    __syncthreads();  // all have read the turns before
    make_turns(a, row0, turns);
    __syncthreads();
    const int n = n_rows * a.heads * a.half;
    for (int task = threadIdx.x; task < n; task += kThreads) {
      const int head = task / a.half, i = task % a.half;
      const int64_t at = (row0 * a.heads + head) * (2 * a.half) + i;
      const float low = load_any(a.x.data, a.x.dtype, at);
      const float high = load_any(a.x.data, a.x.dtype, at + a.half);
      const float2 out = turned(turns[head / a.heads * a.half + i], low, high);
      store_any(a.y, at, out.x);
      store_any(a.y, at + a.half, out.y);
      largest.add(as_stored(a.y.dtype, out.x));
      largest.add(as_stored(a.y.dtype, out.y));
    }
  }
  if (a.amax.partial != nullptr) end_amax(a.amax, largest);
}

class Rope : public Prepared {
 public:
  explicit Rope(const Request& request) : params_(request.get<RopeParams>()) {
    const auto bits = request.tail<RopeParams>();
    args_.half = params_.head_dim / 2;
    if (args_.half > kMaxRopePairs || bits.size() != static_cast<size_t>(args_.half))
      throw ModuleError("[cuda] rope: expected a frequency for each pair of a head");
    std::memcpy(args_.frequency, bits.data(), bits.size_bytes());
    args_.heads = params_.heads;
    args_.rows = params_.rows;
    args_.sign = params_.inverse ? -1.0f : 1.0f;
    args_.rows_per_block = kThreads / args_.half;
  }

  void launch(const Launch& launch) override {
    args_.amax = amax_of(params_.amax, launch);
    if (params_.rows == 0 && args_.amax.partial == nullptr) return;
    args_.x = operand_of(params_.x, launch);
    args_.y = result_of(params_.y, launch);
    args_.positions = launch.in<int32_t>(1);
    const int64_t n_pieces = ceil_div(params_.rows, args_.rows_per_block);
    const auto grid = static_cast<unsigned>(row_blocks(n_pieces, kBlocksPerSm * 132));
    static_assert(kBlocksPerSm * 132 <= kRowBlocks);
    const bool bf16 = params_.x.dtype == Dtype::bf16 && params_.y.dtype == Dtype::bf16;
    if (bf16 && args_.half % 8 == 0) {
      rope_bf16<<<grid, kThreads, 0, launch.stream>>>(args_);
    } else {
      rope_any<<<grid, kThreads, 0, launch.stream>>>(args_);
    }
    check_launch("rope");
  }

 private:
  RopeParams params_;
  RopeArgs args_;
};

std::unique_ptr<Prepared> prepare_rope(const Request& request) {
  return std::make_unique<Rope>(request);
}

const KernelRow kRows[] = {{KernelId::rope, prepare_rope}};

}  // namespace

std::span<const KernelRow> rope_kernels() {
  return kRows;
}

}  // namespace octet::cuda
