// Transposed codes of a layer's result, where tile_codes.cu does not have them: tiles of 128 x
// 128 codes pass through shared memory (code_tile.cuh). The codes by row go out on the way where
// they are wanted too.
#include "backends/cuda/kernels/common/code_tile.cuh"

namespace octet::cuda {
namespace {

// Blocks that a multiprocessor holds, for what a thread has on its way.
constexpr int resident(RowLayer layer, Form form) {
  if (form == Form::f32) return 1;
  const bool two = layer == RowLayer::layer_norm || layer == RowLayer::gated_silu;
  return two && is_short(form) ? 2 : 3;
}

struct TilePlace {
  int64_t row, col;  // of its first element
};

// Tiles go down eight at a time, then across, so that what is read and what is written at one time
// both lie in long pieces. 2^32 tiles are 2^46 elements.
__device__ __forceinline__ TilePlace tile_place(uint32_t i, uint32_t across, uint32_t down) {
  constexpr uint32_t kBand = 8;
  const uint32_t band = i / (kBand * across) * kBand, in_band = i - band * across;
  const uint32_t height = down - band < kBand ? down - band : kBand;
  const uint32_t column = in_band / height;
  return {(int64_t{band} + (in_band - column * height)) * kTile, int64_t{column} * kTile};
}

// The values of one piece, contiguous: 0 behind the edges, and no codes there.
template <RowLayer L, Form F>
struct PieceSource {
  const LayerArgs& a;
  Affine<F> affine;

  struct Fetched {
    Raw<F> x, up;
    NormRow row;
  };

  __device__ __forceinline__ explicit PieceSource(const LayerArgs& args) : a(args) {}
  __device__ __forceinline__ Place place(int64_t at, bool inside) const {
    return {at, kWidth<F>, inside ? INT64_MAX : 0};
  }
  // The columns of this thread's pieces.
  __device__ __forceinline__ void begin(int64_t col) {
    if constexpr (is_norm(L)) {
      affine = load_affine<L == RowLayer::layer_norm, F>(a, place(col, col < a.cols));
    }
  }
  __device__ __forceinline__ Fetched fetch(int64_t row, int64_t col) const {
    const bool inside = row < a.rows && col < a.cols;
    const Place p = place(row * a.cols + col, inside);
    Fetched f = {load_matrix<F, kWidth<F>>(a.x, p), {}, {0, 1}};
    if constexpr (L == RowLayer::gated_silu) f.up = load_matrix<F, kWidth<F>>(a.up, p);
    if constexpr (is_norm(L)) {
      if (inside) f.row = {L == RowLayer::layer_norm ? a.mean[row] : 0.0f, a.rstd[row]};
    }
    return f;
  }
  __device__ __forceinline__ void make(const Fetched& f, float (&v)[kChunk]) const {
    unpack<F>(f.x, v);
    if constexpr (is_norm(L)) {
      normalize<L == RowLayer::layer_norm, F>(f.row, affine, v);
    } else if constexpr (L == RowLayer::gated_silu) {
      float up[kChunk];
      unpack<F>(f.up, up);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] = gated_silu(v[i], up[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] = unary_activation(a.layer, v[i]);
    }
  }
};

// Findings of passes over all tiles.
struct Found {
  Largest largest;
  NanCodes nan;
};

template <RowLayer L, Form F, Out O>
__device__ __forceinline__ void fill_tile(const LayerArgs& a, const Encoding& e, uint4* tile,
                                          const TilePlace& place, Found& found) {
  const int piece = threadIdx.x % kPieces, first = threadIdx.x / kPieces;
  const int64_t col = place.col + piece * kChunk;
  PieceSource<L, F> source(a);
  source.begin(col);
  typename PieceSource<L, F>::Fetched fetched[kPiecesPerThread];
#pragma unroll
  for (int k = 0; k < kPiecesPerThread; ++k)
    fetched[k] = source.fetch(place.row + first + k * kRowsPerStep, col);
#pragma unroll
  for (int k = 0; k < kPiecesPerThread; ++k) {
    const int r = first + k * kRowsPerStep;
    const int64_t row = place.row + r;
    const bool inside = row < a.rows && col < a.cols;
    float v[kChunk];
    source.make(fetched[k], v);
    if (e.amax && inside) found.largest.add(v);
    e.apply_limit(v);
    const uint4 codes = inside ? pack_piece<kCode<O>>(v, e.inv_scale) : make_uint4(0, 0, 0, 0);
    if (F == Form::groups && a.scale.bounded) found.nan.add(codes);
    tile[tile_slot(r, piece)] = codes;
    if (e.codes && inside && a.codes != nullptr)
      *reinterpret_cast<uint4*>(a.codes + row * a.cols + col) = codes;
  }
}

// Any types and sizes: byte by byte.
__device__ __forceinline__ void fill_tile_any(const LayerArgs& a, const Encoding& e, uint4* tile,
                                              const TilePlace& place, Found& found) {
  for (int i = threadIdx.x; i < kTile * kTile; i += kTileThreads) {
    const int r = i / kTile, c = i % kTile;
    const int64_t row = place.row + r, col = place.col + c;
    uint8_t code = 0;
    if (row < a.rows && col < a.cols) {
      const float v = layer_value(a, row, col);
      if (e.amax) found.largest.add(v);
      code = encode_any(a.code, limited(v * e.inv_scale, e.limit));
      if (e.codes && a.codes != nullptr) a.codes[row * a.cols + col] = code;
    }
    reinterpret_cast<uint8_t*>(tile + tile_slot(r, c / kChunk))[c % kChunk] = code;
  }
}

template <RowLayer L, Form F, Out O>
__global__ void __launch_bounds__(kTileThreads, resident(L, F))
    layer_tiles(const __grid_constant__ LayerArgs a) {
  __shared__ uint4 tile[kTile * kPieces];
  const Encoding e = begin_pass(a.scale);
  if (a.scale.pass == Pass::second && !e.codes) return;
  const auto across = static_cast<uint32_t>((a.cols + kTile - 1) / kTile);
  const auto down = static_cast<uint32_t>((a.padded_rows + kTile - 1) / kTile);
  const uint32_t n_tiles = across * down;
  const bool back = a.scale.pass == Pass::second;  // what the first pass read last is still near
  Found found;
  const TileReader reader;
  for (uint32_t i = blockIdx.x; i < n_tiles; i += gridDim.x) {
    const TilePlace place = tile_place(back ? n_tiles - 1 - i : i, across, down);
    if constexpr (F == Form::any) {
      fill_tile_any(a, e, tile, place, found);
    } else {
      fill_tile<L, F, O>(a, e, tile, place, found);
    }
    __syncthreads();
    if (e.codes)
      write_tile<false>(a, tile, reader, static_cast<int>(place.row / kTile),
                        static_cast<int>(place.col / kTile));
    __syncthreads();
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, found.largest);
  if (a.scale.bounded && found.nan.any()) *a.scale.flag = 1;
}

template <RowLayer L>
LayerKernel kernel_of(Form form, Out out) {
  if (form == Form::f32 && out == Out::e4m3) return layer_tiles<L, Form::f32, Out::e4m3>;
  if (form == Form::fp16)
    return out == Out::e4m3 ? layer_tiles<L, Form::fp16, Out::e4m3>
                            : layer_tiles<L, Form::fp16, Out::hif8>;
  return out == Out::e4m3 ? layer_tiles<L, Form::bf16, Out::e4m3>
                          : layer_tiles<L, Form::bf16, Out::hif8>;
}
LayerKernel kernel_of(const LayerProblem& p) {
  switch (p.args.layer) {
    case RowLayer::rms_norm:
      return kernel_of<RowLayer::rms_norm>(p.form, p.out);
    case RowLayer::layer_norm:
      return kernel_of<RowLayer::layer_norm>(p.form, p.out);
    case RowLayer::gated_silu:
      return kernel_of<RowLayer::gated_silu>(p.form, p.out);
    default:
      return kernel_of<RowLayer::gelu_tanh>(p.form, p.out);
  }
}

}  // namespace

LayerLaunch layer_tiles_launch(const LayerProblem& p) {
  const LayerArgs& a = p.args;
  const bool is_any = p.kernel == RowKernel::layer_tiles_any;
  const int64_t n_tiles = ceil_div(a.cols, kTile) * ceil_div(a.padded_rows, kTile);
  const auto grid = static_cast<unsigned>(
      wave_blocks(n_tiles, resident(a.layer, is_any ? Form::any : p.form), a.n_sm));
  // Codes of a gelu alone: norms and gates have kernels of their own (tile_codes.cu).
  return {is_any                   ? layer_tiles<RowLayer::rms_norm, Form::any, Out::any>
          : p.form == Form::groups ? layer_tiles<RowLayer::gelu_tanh, Form::groups, Out::e4m3>
                                   : kernel_of(p),
          grid, kTileThreads};
}

}  // namespace octet::cuda
