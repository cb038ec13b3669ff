// Transposed codes of a layer's result: tiles of 128 x 128 codes pass through shared memory. The
// codes by row go out on the way where they are wanted too.
//
// The tile holds a row's 128 codes in 8 pieces of 16 bytes; piece q of row r stands at q ^ (r / 16
// % 8), so that neither the writes of whole pieces nor the reads of one word of every 16th row
// meet in a bank.
#include "backends/cuda/kernels/rows_gated_codes.cuh"
#include "backends/cuda/kernels/rows_norm_columns.cuh"

namespace octet::cuda {
namespace {

constexpr int kTile = 128;
constexpr int kTileThreads = 256;
constexpr int kPieces = kTile / kChunk;                           // of a row of the tile
constexpr int kPiecesPerThread = kTile * kPieces / kTileThreads;  // 4
constexpr int kRowsPerStep = kTileThreads / kPieces;              // 32

// Blocks that a multiprocessor holds, for what a thread has on its way.
constexpr int resident(RowLayer layer, Form form) {
  if (form == Form::f32) return 1;
  if (layer == RowLayer::layer_norm) return 2;
  if (layer == RowLayer::rms_norm && form == Form::groups) return 4;
  return layer == RowLayer::gated_silu && form == Form::bf16 ? 2 : 3;
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

__device__ __forceinline__ uint4* tile_piece(uint4* tile, int row, int piece) {
  return tile + row * kPieces + (piece ^ (row / 16 % kPieces));
}
// A word of the first of sixteen rows; the rest follow, a row's pieces apart.
__device__ __forceinline__ const uint32_t* tile_word(const uint4* tile, int rows16, int word) {
  const int at = rows16 * 16 * kPieces + ((word / 4) ^ rows16);
  return reinterpret_cast<const uint32_t*>(tile + at) + word % 4;
}

// Four words of four codes, the transpose of a 4 x 4 block of bytes.
__device__ __forceinline__ void transpose4(const uint32_t (&in)[4], uint32_t (&out)[4]) {
  const uint32_t a = __byte_perm(in[0], in[1], 0x5140), b = __byte_perm(in[2], in[3], 0x5140);
  const uint32_t c = __byte_perm(in[0], in[1], 0x7362), d = __byte_perm(in[2], in[3], 0x7362);
  out[0] = __byte_perm(a, b, 0x5410);
  out[1] = __byte_perm(a, b, 0x7632);
  out[2] = __byte_perm(c, d, 0x5410);
  out[3] = __byte_perm(c, d, 0x7632);
}

// Sixteen rows of a column whose rows are not aligned.
__device__ __noinline__ void store_bytes(uint8_t* to, uint4 codes, int64_t n) {
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i < n) to[i] = static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
  }
}

// Each thread takes four columns of sixteen rows; eight threads write 128 bytes of a column.
__device__ __forceinline__ void write_tile(const LayerArgs& a, const uint4* tile,
                                           const TilePlace& place) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows16 = lane % 8, word = warp * 4 + lane / 8;
  const uint32_t* const from = tile_word(tile, rows16, word);
  uint32_t columns[4][4];  // [column][four rows]
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t in[4], out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) in[i] = from[(4 * k + i) * kPieces * 4];
    transpose4(in, out);
#pragma unroll
    for (int c = 0; c < 4; ++c) columns[c][k] = out[c];
  }
  const int64_t col = place.col + word * 4, left = a.padded_rows - (place.row + rows16 * 16);
  if (left <= 0) return;
  uint8_t* to = a.transposed + col * a.padded_rows + (place.row + rows16 * 16);
  const int n = a.cols - col < 4 ? static_cast<int>(a.cols - col) : 4;
  const bool aligned = a.padded_rows % 16 == 0;
#pragma unroll
  for (int c = 0; c < 4; ++c, to += a.padded_rows) {
    if (c >= n) break;
    const uint4 codes = make_uint4(columns[c][0], columns[c][1], columns[c][2], columns[c][3]);
    if (aligned) {
      *reinterpret_cast<uint4*>(to) = codes;
    } else {
      store_bytes(to, codes, left);
    }
  }
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
      for (int i = 0; i < kChunk; ++i) v[i] = gated_silu<kPowers<F>>(v[i], up[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] = gelu<kPowers<F>>(a.layer, v[i]);
    }
  }
};

// What passes over all tiles look for.
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
    const uint4 codes = inside ? pack_piece<kCode<O>>(v, e.inv_scale) : make_uint4(0, 0, 0, 0);
    if (F == Form::groups && a.scale.bounded) found.nan.add(codes);
    *tile_piece(tile, r, piece) = codes;
    if (e.codes && inside && a.codes != nullptr)
      *reinterpret_cast<uint4*>(a.codes + row * a.cols + col) = codes;
  }
}

// Of a gated activation of codes in groups: codes to codes.
__device__ __forceinline__ void fill_gated_tile(const LayerArgs& a, const Encoding& e, uint4* tile,
                                                const TilePlace& place, Found& found) {
  const int piece = threadIdx.x % kPieces, first = threadIdx.x / kPieces;
  const int64_t n_groups = a.cols / kChunk, column = place.col / kChunk + piece;
  const int64_t at = (place.row + first) * n_groups + column, step = kRowsPerStep * n_groups;
  const int64_t left = column < n_groups ? a.rows - (place.row + first) : 0;  // rows from here on
  const auto* gates = static_cast<const uint4*>(a.x.data) + at;
  const auto* ups = static_cast<const uint4*>(a.up.data) + at;
  const auto* gate_scales = static_cast<const uint16_t*>(a.x.scales) + at;
  const auto* up_scales = static_cast<const uint16_t*>(a.up.scales) + at;
  uint4 gate[kPiecesPerThread] = {}, up[kPiecesPerThread] = {};
  uint16_t gate_scale[kPiecesPerThread] = {}, up_scale[kPiecesPerThread] = {};
#pragma unroll
  for (int k = 0; k < kPiecesPerThread; ++k) {
    if (k * kRowsPerStep >= left) continue;
    gate[k] = __ldcs(gates + k * step);
    up[k] = __ldcs(ups + k * step);
    gate_scale[k] = __ldcs(gate_scales + k * step);
    up_scale[k] = __ldcs(up_scales + k * step);
  }
  auto* const codes = reinterpret_cast<uint4*>(a.codes) + at;
  const bool by_row = e.codes && a.codes != nullptr;
#pragma unroll
  for (int k = 0; k < kPiecesPerThread; ++k) {
    // Zeros where nothing was read: their scales are 0, and so is the factor, and the code.
    const GatedFactors factors(gate_scale[k], up_scale[k], e.inv_scale);
    const uint4 some = gated_codes(gate[k], up[k], factors);
    *tile_piece(tile, first + k * kRowsPerStep, piece) = some;
    found.nan.add(some);
    if (by_row && k * kRowsPerStep < left) codes[k * step] = some;
  }
}

// Of a norm of codes in groups: codes to codes, whose weights serve all of a thread's pieces.
template <bool kCentred>
__device__ __forceinline__ void fill_norm_tile(const LayerArgs& a, const Encoding& e, uint4* tile,
                                               const TilePlace& place) {
  const int piece = threadIdx.x % kPieces, first = threadIdx.x / kPieces;
  const int64_t n_groups = a.cols / kChunk, column = place.col / kChunk + piece;
  const int64_t row = place.row + first;
  const int64_t at = row * n_groups + column, step = kRowsPerStep * n_groups;
  const int64_t left = column < n_groups ? a.rows - row : 0;  // rows from here on
  const auto* from = static_cast<const uint4*>(a.x.data) + at;
  const auto* from_scales = static_cast<const uint16_t*>(a.x.scales) + at;
  const Affine<Form::groups> affine = load_affine<kCentred, Form::groups>(
      a, {column * kChunk, kChunk, column < n_groups ? INT64_MAX : 0});
  uint32_t words[kPiecesPerThread][4] = {};
  uint16_t scales[kPiecesPerThread] = {};
  NormRow rows[kPiecesPerThread] = {};
#pragma unroll
  for (int k = 0; k < kPiecesPerThread; ++k) {
    if (k * kRowsPerStep >= left) continue;
    const uint4 codes = __ldcs(from + k * step);
    words[k][0] = codes.x, words[k][1] = codes.y, words[k][2] = codes.z, words[k][3] = codes.w;
    scales[k] = __ldcs(from_scales + k * step);
    rows[k] = {kCentred ? a.mean[row + k * kRowsPerStep] : 0.0f, a.rstd[row + k * kRowsPerStep]};
  }
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const FourColumns columns(affine, w);
#pragma unroll
    for (int k = 0; k < kPiecesPerThread; ++k)
      words[k][w] = norm_word<kCentred>(words[k][w], to_float<Dtype::bf16>(scales[k]), rows[k],
                                        columns, e.inv_scale);
  }
  auto* const codes = reinterpret_cast<uint4*>(a.codes) + at;
  const bool by_row = e.codes && a.codes != nullptr;
#pragma unroll
  for (int k = 0; k < kPiecesPerThread; ++k) {
    const bool inside = k * kRowsPerStep < left;
    const uint4 some = inside ? make_uint4(words[k][0], words[k][1], words[k][2], words[k][3])
                              : make_uint4(0, 0, 0, 0);
    *tile_piece(tile, first + k * kRowsPerStep, piece) = some;
    if (by_row && inside) codes[k * step] = some;
  }
}

// The codes of a tile and their scales are on their way to the cache, and nothing waits for them.
__device__ __forceinline__ void announce_tile(const Matrix& x, int64_t n_rows,
                                              const TilePlace& place) {
  static_assert(kTileThreads == 2 * kTile);
  const int64_t row = place.row + threadIdx.x % kTile, at = row * x.cols + place.col;
  if (row >= n_rows) return;
  const void* const line = threadIdx.x < kTile
                               ? static_cast<const void*>(static_cast<const char*>(x.data) + at)
                               : static_cast<const uint16_t*>(x.scales) + at / kChunk;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
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
      code = encode_any(a.code, v * e.inv_scale);
      if (e.codes && a.codes != nullptr) a.codes[row * a.cols + col] = code;
    }
    reinterpret_cast<uint8_t*>(tile_piece(tile, r, c / kChunk))[c % kChunk] = code;
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
  const auto place_of = [&](uint32_t i) {
    return tile_place(back ? n_tiles - 1 - i : i, across, down);
  };
  constexpr bool kGated = L == RowLayer::gated_silu;
  constexpr bool kAhead = (is_norm(L) || kGated) && F == Form::groups;
  TilePlace next = kAhead && n_tiles > 0 ? place_of(blockIdx.x) : TilePlace{};
  for (uint32_t i = blockIdx.x; i < n_tiles; i += gridDim.x) {
    const TilePlace place = kAhead ? next : place_of(i);
    if (kAhead && i + gridDim.x < n_tiles) {
      next = place_of(i + gridDim.x);
      announce_tile(a.x, a.rows, next);
      if constexpr (kGated) announce_tile(a.up, a.rows, next);
    }
    if constexpr (F == Form::any) {
      fill_tile_any(a, e, tile, place, found);
    } else if constexpr (L == RowLayer::gated_silu && F == Form::groups) {
      fill_gated_tile(a, e, tile, place, found);
    } else if constexpr (is_norm(L) && F == Form::groups) {
      fill_norm_tile<L == RowLayer::layer_norm>(a, e, tile, place);
    } else {
      fill_tile<L, F, O>(a, e, tile, place, found);
    }
    __syncthreads();
    if (e.codes) write_tile(a, tile, place);
    __syncthreads();
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, found.largest);
  if (a.scale.bounded && found.nan.any()) *a.scale.flag = 1;
}

template <RowLayer L>
void launch_kind(Form form, Out out, const LayerArgs& a, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(tile_blocks(form, a));
  if (form == Form::groups && out == Out::e4m3) {
    layer_tiles<L, Form::groups, Out::e4m3><<<grid, kTileThreads, 0, stream>>>(a);
  } else if (form == Form::f32 && out == Out::e4m3) {
    layer_tiles<L, Form::f32, Out::e4m3><<<grid, kTileThreads, 0, stream>>>(a);
  } else if (out == Out::e4m3) {
    layer_tiles<L, Form::bf16, Out::e4m3><<<grid, kTileThreads, 0, stream>>>(a);
  } else {
    layer_tiles<L, Form::bf16, Out::hif8><<<grid, kTileThreads, 0, stream>>>(a);
  }
}

}  // namespace

// One wave of 132 multiprocessors.
int tile_blocks(Form form, const LayerArgs& a) {
  const int64_t n_tiles = ceil_div(a.cols, kTile) * ceil_div(a.padded_rows, kTile);
  static_assert(4 * 132 <= kRowBlocks);
  return static_cast<int>(row_blocks(n_tiles, resident(a.layer, form) * 132));
}

void launch_tiles(Form form, Out out, const LayerArgs& a, cudaStream_t stream) {
  if (form == Form::any || out == Out::any) {
    const auto grid = static_cast<unsigned>(tile_blocks(Form::any, a));
    layer_tiles<RowLayer::rms_norm, Form::any, Out::any><<<grid, kTileThreads, 0, stream>>>(a);
  } else if (a.layer == RowLayer::rms_norm) {
    launch_kind<RowLayer::rms_norm>(form, out, a, stream);
  } else if (a.layer == RowLayer::layer_norm) {
    launch_kind<RowLayer::layer_norm>(form, out, a, stream);
  } else if (a.layer == RowLayer::gated_silu) {
    launch_kind<RowLayer::gated_silu>(form, out, a, stream);
  } else {
    launch_kind<RowLayer::gelu_tanh>(form, out, a, stream);
  }
  check_launch("layer_tiles");
}

}  // namespace octet::cuda
