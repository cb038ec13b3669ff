// Products of FP8 factors with a scale for 128 elements along k, or for 128 x 128: cuBLASLt's block
// modes, which Hopper has. It wants K-major factors and f32 scales in an order of its own
// (params/gemm_scratch.h), so that what lies otherwise is transposed before: one byte an element
// read and written, where decoding to BF16 writes two and multiplies at half the rate.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/gemm/gemm.cuh"
#include "backends/cuda/params/gemm_scratch.h"

namespace octet::cuda {
namespace {

constexpr int kTile = 64;
constexpr int kTileWords = kTile / 4;

// [rows, cols] bytes to [cols, rows], both multiples of 16: tiles of 64 x 64. A thread turns 4 x 4
// bytes in registers.
__global__ void __launch_bounds__(kThreads)
    turn_bytes(const uint8_t* from, uint8_t* to, int64_t rows, int64_t cols) {
  __shared__ uint32_t tile[kTile][kTileWords + 1];
  const int64_t across = (cols + kTile - 1) / kTile;
  const int64_t first_row = blockIdx.x / across * kTile, first_col = blockIdx.x % across * kTile;
  const int word = threadIdx.x % kTileWords, four = threadIdx.x / kTileWords;
  uint32_t in[4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t row = first_row + 4 * four + j, col = first_col + 4 * word;
    if (row < rows && col < cols)
      in[j] = *reinterpret_cast<const uint32_t*>(from + row * cols + col);
  }
  const uint32_t low01 = __byte_perm(in[0], in[1], 0x5140);
  const uint32_t low23 = __byte_perm(in[2], in[3], 0x5140);
  const uint32_t high01 = __byte_perm(in[0], in[1], 0x7362);
  const uint32_t high23 = __byte_perm(in[2], in[3], 0x7362);
  tile[4 * word + 0][four] = __byte_perm(low01, low23, 0x5410);
  tile[4 * word + 1][four] = __byte_perm(low01, low23, 0x7632);
  tile[4 * word + 2][four] = __byte_perm(high01, high23, 0x5410);
  tile[4 * word + 3][four] = __byte_perm(high01, high23, 0x7632);
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t col = first_col + four + j * (kThreads / kTileWords);
    const int64_t row = first_row + 4 * word;
    if (col < cols && row < rows)
      *reinterpret_cast<uint32_t*>(to + col * rows + row) =
          tile[four + j * (kThreads / kTileWords)][word];
  }
}

// A grid of scales as a factor has them, and as the library reads them.
struct ScaleGrid {
  const void* from;
  float* to;
  int64_t outer, deep;        // blocks along the factor's own axis, and along k
  int64_t outer_to, deep_to;  // strides of `to`
  bool deep_first;            // `from` is [deep, outer]
  Dtype dtype;
};

__global__ void __launch_bounds__(kThreads) place_scales(const __grid_constant__ ScaleGrid g) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= g.outer * g.deep) return;
  const int64_t outer = g.deep_first ? i % g.outer : i / g.deep;
  const int64_t deep = g.deep_first ? i / g.outer : i % g.deep;
  const float scale = g.dtype == Dtype::e8m0
                          ? to_float<Dtype::e8m0>(static_cast<const uint8_t*>(g.from)[i])
                          : load_float(g.from, i, g.dtype);
  g.to[outer * g.outer_to + deep * g.deep_to] = scale;
}

// One factor: what it is, and where in scratch it is made ready.
struct Factor {
  bool k_major, square;
  int64_t outer, k;
  Dtype scales;
  int64_t transposed_at = 0, scales_at = 0;
};

const float* ready_scales(const Factor& f, const void* scales, std::byte* scratch,
                          cudaStream_t stream) {
  const bool is_ready = !f.k_major && !f.square && f.scales == Dtype::f32;
  if (is_ready) return static_cast<const float*>(scales);
  const int64_t deep = ceil_div(f.k, kLibraryBlock), deep_padded = ceil_div(deep, 4) * 4;
  const ScaleGrid grid{.from = scales,
                       .to = reinterpret_cast<float*>(scratch + f.scales_at),
                       .outer = f.square ? ceil_div(f.outer, kLibraryBlock) : f.outer,
                       .deep = deep,
                       .outer_to = f.square ? deep_padded : 1,
                       .deep_to = f.square ? 1 : f.outer,
                       .deep_first = !f.k_major,
                       .dtype = f.scales};
  place_scales<<<grid_of(ceil_div(grid.outer * grid.deep, kThreads)), kThreads, 0, stream>>>(grid);
  check_launch("scales of blocks");
  return grid.to;
}

const void* ready_data(const Factor& f, const void* data, std::byte* scratch, cudaStream_t stream) {
  if (f.k_major) return data;
  auto* to = reinterpret_cast<uint8_t*>(scratch + f.transposed_at);
  const unsigned grid = grid_of(ceil_div(f.k, kTile) * ceil_div(f.outer, kTile));
  turn_bytes<<<grid, kThreads, 0, stream>>>(static_cast<const uint8_t*>(data), to, f.k, f.outer);
  check_launch("turning a factor");
  return to;
}

// Parameters as the library sees them: both factors K-major.
GemmParams k_major(GemmParams p) {
  p.trans_a = false;
  p.trans_b = true;
  p.fast_accumulate = false;
  return p;
}

class BlockGemm : public Prepared {
 public:
  BlockGemm(Context& context, const GemmParams& p)
      : params_(p),
        problem_(context, k_major(p), AlphaPlace::one, kGemmWorkspace),
        a_{!p.trans_a, is_square(p.a_blocks), p.m, p.k, p.a_scales},
        b_{p.trans_b, is_square(p.b_blocks), p.n, p.k, p.b_scales} {
    int64_t at = 0;
    for (Factor* f : {&a_, &b_}) {
      f->transposed_at = at;
      at += aligned_bytes(f->k_major ? 0 : f->outer * f->k);
    }
    for (Factor* f : {&a_, &b_}) {
      f->scales_at = at;
      at += aligned_bytes(4 * scale_entries(f->square, f->outer, f->k));
    }
  }

  void launch(const Launch& args) override {
    using Slot = GemmOperand;
    const GemmScratch scratch = gemm_scratch(params_, args.scratch);
    std::byte* const ready = scratch.factors;
    problem_.run({.a = ready_data(a_, args.operands[Slot::a], ready, args.stream),
                  .b = ready_data(b_, args.operands[Slot::b], ready, args.stream),
                  .c = params_.has_c ? args.operands[Slot::c] : nullptr,
                  .y = args.results[0],
                  .scale_a = ready_scales(a_, args.operands[Slot::scale_a], ready, args.stream),
                  .scale_b = ready_scales(b_, args.operands[Slot::scale_b], ready, args.stream),
                  .workspace = scratch.workspace},
                 args.stream);
  }

 private:
  GemmParams params_;
  GemmProblem problem_;
  Factor a_, b_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_gemm_blocks(Context& context, const GemmParams& p) {
  return std::make_unique<BlockGemm>(context, p);
}

}  // namespace octet::cuda
