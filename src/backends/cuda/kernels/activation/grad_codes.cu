// Codes of a gated activation's gradients, by row and transposed: tiles of codes as in
// tile_codes.cu, two of them at a time. Gradients are rounded to bf16 before they are measured
// and quantized.
//
// A thread takes the same piece of four rows of every tile; what the next tile wants is on its way
// to the registers from the moment that this tile's is used.

#include "backends/cuda/kernels/common/code_tile_walk.cuh"
#include "backends/cuda/kernels/common/row_launch.cuh"

namespace octet::cuda {
namespace {

constexpr int kResident = 2;  // blocks of a multiprocessor

struct GradCodes {
  uint8_t* codes = nullptr;       // [rows, cols]
  uint8_t* transposed = nullptr;  // [cols, padded_rows]
};

struct GradCodesArgs {
  Matrix dy, x, up;
  int64_t rows = 0, cols = 0, padded_rows = 0;
  int n_sm = 1;
  GradCodes gate, up_grad;
  ScaleArgs scale;
};

// Arguments of write_tile.
struct TransposedArgs {
  int64_t cols, padded_rows;
  uint8_t* transposed;
};

// Sixteen values as bf16 has them.
__device__ __forceinline__ void round_to_bf16(float (&v)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; i += 2) unpack_bf16(pack_bf16(v[i], v[i + 1]), v + i);
}

// Pieces that a thread takes of a tile.
template <Form F, bool kWhole>
struct GradPieces {
  Raw<F> x[kPiecesPerThread], up[kPiecesPerThread];
  Raw<Form::bf16> dy[kPiecesPerThread];

  // Behind the edges the last row or column again.
  __device__ __forceinline__ void load(const GradCodesArgs& a, const PiecesPlace<kWhole>& p,
                                       int k) {
    const Place place{int64_t{p.piece(k)} * kChunk, kWidth<F>, INT64_MAX};
    x[k] = load_matrix<F, kWidth<F>>(a.x, place);
    up[k] = load_matrix<F, kWidth<F>>(a.up, place);
    dy[k] = load_matrix<Form::bf16, kWidth<F>>(a.dy, place);
  }
  __device__ __forceinline__ void load(const GradCodesArgs& a, const PiecesPlace<kWhole>& p) {
#pragma unroll
    for (int k = 0; k < kPiecesPerThread; ++k) load(a, p, k);
  }
  __device__ __forceinline__ void gradients(int k, float (&gate)[kChunk],
                                            float (&second)[kChunk]) const {
    float d[kChunk];
    unpack<F>(x[k], gate);
    unpack<F>(up[k], second);
    unpack<Form::bf16>(dy[k], d);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const GatedGrad grad = gated_grad(d[i], gate[i], second[i]);
      gate[i] = grad.gate;
      second[i] = grad.up;
    }
    round_to_bf16(gate);
    round_to_bf16(second);
  }
};

// Destination of a thread's piece k of a tile.
template <bool kWhole>
struct PieceTarget {
  uint4 (&tiles)[2][kTile * kPieces];
  const TileAt& at;
  const ThreadAt& thread;

  __device__ __forceinline__ bool inside(const GradCodesArgs& a, int k) const {
    return kWhole || (row(k) < static_cast<int>(a.rows) && column() < groups(a));
  }
  __device__ __forceinline__ void put(const GradCodesArgs& a, int k, uint4 gate, uint4 up) const {
    const bool is_inside = inside(a, k);
    if (!is_inside) gate = up = make_uint4(0, 0, 0, 0);
    tiles[0][thread.slot_of(k)] = gate;
    tiles[1][thread.slot_of(k)] = up;
    if (!is_inside) return;
    const uint32_t to = static_cast<uint32_t>(row(k)) * static_cast<uint32_t>(groups(a)) +
                        static_cast<uint32_t>(column());
    reinterpret_cast<uint4*>(a.gate.codes)[to] = gate;
    reinterpret_cast<uint4*>(a.up_grad.codes)[to] = up;
  }

 private:
  static __device__ __forceinline__ int groups(const GradCodesArgs& a) {
    return static_cast<int>(a.cols / kChunk);
  }
  __device__ __forceinline__ int row(int k) const {
    return at.row * kTile + thread.row + k * kRowsPerStep;
  }
  __device__ __forceinline__ int column() const { return at.column * kPieces + thread.piece; }
};

template <Form F, Dtype C, bool kWhole>
__global__ void __launch_bounds__(kTileThreads, kResident)
    gated_grad_tiles(const __grid_constant__ GradCodesArgs a) {
  __shared__ uint4 tiles[2][kTile * kPieces];
  ThreadAt thread;
  thread.keep();
  TileWalk walk(a);
  GradPieces<F, kWhole> pieces;
  if (walk.more()) pieces.load(a, PiecesPlace<kWhole>(a, walk.at(), thread));
  const Encoding e = begin_pass(a.scale);
  if (a.scale.pass == Pass::second && !e.codes) return;
  Largest largest;
  while (walk.more()) {
    const TileAt at = walk.at();
    walk.advance();
    const bool more = walk.more();
    const PiecesPlace<kWhole> next(a, more ? walk.at() : at, thread);
    const PieceTarget<kWhole> to{tiles, at, thread};
#pragma unroll
    for (int k = 0; k < kPiecesPerThread; ++k) {
      float gate[kChunk], up[kChunk];
      pieces.gradients(k, gate, up);
      if (more) pieces.load(a, next, k);
      // Pieces behind the edges are others' too.
      if (e.amax) largest.add(gate), largest.add(up);
      if (e.codes) to.put(a, k, pack_piece<C>(gate, e.inv_scale), pack_piece<C>(up, e.inv_scale));
    }
    if (!e.codes) continue;
    __syncthreads();
    write_tile<kWhole>(TransposedArgs{a.cols, a.padded_rows, a.gate.transposed}, tiles[0],
                       thread.reader, at.row, at.column);
    write_tile<kWhole>(TransposedArgs{a.cols, a.padded_rows, a.up_grad.transposed}, tiles[1],
                       thread.reader, at.row, at.column);
    __syncthreads();
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, largest);
}

using TilesKernel = void (*)(GradCodesArgs);
template <Form F, Dtype C>
TilesKernel kernel_of(const GradCodesParams& p) {
  return p.whole ? gated_grad_tiles<F, C, true> : gated_grad_tiles<F, C, false>;
}
TilesKernel kernel_of(const GradCodesParams& p) {
  const bool e5m2 = p.codes.dtype == Dtype::e5m2;
  if (p.form == Form::bf16)
    return e5m2 ? kernel_of<Form::bf16, Dtype::e5m2>(p) : kernel_of<Form::bf16, Dtype::e4m3>(p);
  return e5m2 ? kernel_of<Form::groups, Dtype::e5m2>(p) : kernel_of<Form::groups, Dtype::e4m3>(p);
}

class GatedGradCodes : public Prepared {
 public:
  GatedGradCodes(const GradCodesParams& params, int n_sm) : p_(params), kernel_(kernel_of(params)) {
    const int64_t n_tiles = int64_t{tiles_of(p_.cols)} * tiles_of(p_.codes.padded_rows);
    grid_ = static_cast<unsigned>(wave_blocks(n_tiles, kResident, n_sm));
  }

  void launch(const Launch& launch) override {
    GradCodesArgs a = args_of(launch);
    const TilesKernel kernel = kernel_;
    for (int i = 0; i < p_.n_passes; ++i) {
      a.scale.pass = p_.passes[i];
      kernel<<<grid_, kTileThreads, 0, launch.stream>>>(a);
      check_launch("gated_grad_tiles");
    }
  }

 private:
  GradCodesArgs args_of(const Launch& launch) const {
    const GradCodesParams& p = p_;
    const CodesArg& c = p.codes;
    GradCodesArgs a;
    a.dy = matrix_of(p.dy, p.cols, launch);
    a.x = matrix_of(p.x, p.cols, launch);
    a.up = matrix_of(p.up, p.cols, launch);
    a.rows = p.rows;
    a.cols = p.cols;
    a.padded_rows = c.padded_rows;
    a.n_sm = launch.n_sm;
    a.gate = {result_at<uint8_t>(launch, c.rows_at), result_at<uint8_t>(launch, c.transposed_at)};
    a.up_grad = {result_at<uint8_t>(launch, p.second_rows_at),
                 result_at<uint8_t>(launch, p.second_transposed_at)};
    a.scale = {.first_encodes = p.codes.given_at == kAbsent && c.n_history > 0,
               .n_partial = static_cast<int>(grid_),
               .n_history = c.n_history,
               .target = c.target,
               .given = operand_at<float>(launch, c.given_at),
               .history = operand_at<float>(launch, c.history_at),
               .partial = static_cast<float*>(launch.scratch),
               .scale = result_at<float>(launch, c.scale_at),
               .flag = result_at<uint8_t>(launch, c.flag_at),
               .next_history = result_at<float>(launch, c.next_history_at)};
    return a;
  }

  GradCodesParams p_;
  TilesKernel kernel_;
  unsigned grid_ = 1;
};

std::unique_ptr<Prepared> prepare_grad_codes(const Request& request) {
  return std::make_unique<GatedGradCodes>(request.get<GradCodesParams>(), request.n_sm);
}

const KernelEntry kRows[] = {{KernelId::gated_act_grad_quantize, prepare_grad_codes}};

}  // namespace

std::span<const KernelEntry> grad_codes_kernels() {
  return kRows;
}

}  // namespace octet::cuda
