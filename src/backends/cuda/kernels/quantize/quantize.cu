// Codes of a tensor by its one scale, by row and transposed: params/quantize.h.
#include <algorithm>

#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/quantize/quantize_source.cuh"

namespace octet::cuda {
namespace {

constexpr int kPacks = 4;  // eights of a thread
constexpr int kChunk = kThreads * kEight * kPacks;
// Blocks of a multiprocessor at least: registers for the loads under way.
template <Dtype X, ScaleFrom H>
constexpr int kBlocks = X == Dtype::f32 || H < ScaleFrom::amax ? 4 : 5;

// HiF8's codes are looked up in shared memory; the other formats have the machine's conversion.
__device__ constexpr Hif8Table kHif8Codes = make_hif8_table();

// Chunks, or tiles, of a block: as many as make the copy of the table cheap.
template <Dtype C>
constexpr int kPieces = C == Dtype::hif8 ? 4 : 1;

template <Dtype C>
__device__ __forceinline__ const uint8_t* code_table() {
  if constexpr (C == Dtype::hif8) {
    __shared__ Hif8Table table;
    for (int i = threadIdx.x; i < static_cast<int>(sizeof(table) / sizeof(uint4)); i += kThreads)
      reinterpret_cast<uint4*>(&table)[i] = reinterpret_cast<const uint4*>(&kHif8Codes)[i];
    __syncthreads();
    return table.code;
  } else {
    return nullptr;
  }
}

template <Dtype C>
__device__ __forceinline__ uint32_t look_up(float product, const uint8_t* table) {
  if constexpr (C == Dtype::hif8) return table[__float_as_uint(product) >> kHif8Shift];
  return from_float<C>(product);
}

// All threads of a launch go one way.
__device__ __forceinline__ void limit8(float (&v)[8], float inv_scale, float limit) {
  if (limit == 0) return;
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    if (!(fabsf(v[j] * inv_scale) <= limit)) v[j] = __int_as_float(0x7FFFFFFF);
  }
}

template <Dtype C>
__device__ __forceinline__ uint2 look_up8(const float (&v)[8], float factor, const uint8_t* table) {
  if constexpr (C == Dtype::hif8) {
    uint32_t words[2] = {};
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
      words[j / 4] |= look_up<C>(v[j] * factor, table) << (8 * (j % 4));
    }
    return {words[0], words[1]};
  } else {
    return encode8<C>(v, factor);
  }
}

struct RowCodes {
  const void* x;
  ScaleSource scale;
  uint8_t* codes;
  int64_t n;
  float limit;
  bool aligned = false;
};

template <ScaleFrom H>
constexpr bool kJoins = H == ScaleFrom::joined;

template <Dtype X, Dtype C, ScaleFrom H>
__device__ __forceinline__ void quantize_chunk(const RowCodes& a, int64_t base,
                                               const uint8_t* table, Magnitude& found) {
  if (a.aligned && base + kChunk <= a.n) {
    Raw8 raw[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      raw[p] = load_raw8(a.x, base + (p * kThreads + threadIdx.x) * kEight, X);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) pin(raw[p]);
    const float inv_scale = 1.0f / a.scale.value<H>();
    if constexpr (kJoins<H>) join_all<X>(found, raw);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float v[8];
      widen8(raw[p], X, v);
      limit8(v, inv_scale, a.limit);
      const int64_t i = base + (p * kThreads + threadIdx.x) * kEight;
      *reinterpret_cast<uint2*>(a.codes + i) = look_up8<C>(v, inv_scale, table);
    }
    return;
  }
  const float inv_scale = 1.0f / a.scale.value<H>();
  for (int64_t i = base + threadIdx.x; i < min(a.n, base + kChunk); i += kThreads) {
    const float x = load_float(a.x, i, X);
    if constexpr (kJoins<H>) found.join(x);
    a.codes[i] = static_cast<uint8_t>(look_up<C>(limited(x * inv_scale, a.limit), table));
  }
}

template <Dtype X, Dtype C, ScaleFrom H>
__global__ void __launch_bounds__(kThreads, (kBlocks<X, H>))
    quantize_rows(const __grid_constant__ RowCodes a) {
  const uint8_t* table = code_table<C>();
  wait_for_previous();
  Magnitude found;
  for (int k = 0; k < kPieces<C>; ++k) {
    const int64_t base = (int64_t{blockIdx.x} * kPieces<C> + k) * kChunk;
    quantize_chunk<X, C, H>(a, base, table, found);
  }
  end_scale<H>(a.scale, found);
}

// A block turns a tile of 128 rows and 64 columns. A thread encodes eight columns of four rows and
// turns them in registers: a word of a column's four rows. The words of a column lie in shared
// memory in eight chunks of 16 bytes, chunk c of column j at c ^ (j / 8), so that neither the
// writes of a warp (eight columns, four words) nor its reads (16 bytes each) meet in a bank.
constexpr int kTileRows = 128;
constexpr int kTileCols = 64;
constexpr int kTileWords = kTileRows / 4;

struct TileCodes {
  const void* x;
  ScaleSource scale;
  uint8_t* by_row;  // nullptr: not wanted
  uint8_t* transposed;
  int64_t rows, cols, padded_rows, tiles_across, n_tiles;
  float limit;
  bool aligned_x = false, aligned_rows = false, aligned_transposed = false;
};

// What a block keeps over its tiles.
struct TileState {
  const uint8_t* table;
  uint32_t* tile;
  Magnitude found;
};

// The codes of one row's eight columns, zero outside of the matrix.
template <Dtype X, Dtype C, ScaleFrom H>
__device__ __forceinline__ uint2 encode_edge(const TileCodes& a, int64_t row, int64_t col,
                                             float inv_scale, TileState& state) {
  uint32_t words[2] = {};
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    if (row >= a.rows || col + j >= a.cols) continue;
    const float x = load_float(a.x, row * a.cols + col + j, X);
    if constexpr (kJoins<H>) state.found.join(x);
    const float scaled = limited(x * inv_scale, a.limit);
    words[j / 4] |= look_up<C>(scaled, state.table) << (8 * (j % 4));
  }
  return {words[0], words[1]};
}

template <Dtype X, Dtype C, ScaleFrom H>
__device__ __forceinline__ void encode_four_rows(const TileCodes& a, int64_t row, int64_t col,
                                                 TileState& state, uint2 (&codes)[4]) {
  if (a.aligned_x && row + 4 <= a.rows && col + kEight <= a.cols) {
    Raw8 raw[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) raw[k] = load_raw8(a.x, (row + k) * a.cols + col, X);
#pragma unroll
    for (int k = 0; k < 4; ++k) pin(raw[k]);
    const float inv_scale = 1.0f / a.scale.value<H>();
    if constexpr (kJoins<H>) join_all<X>(state.found, raw);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float v[8];
      widen8(raw[k], X, v);
      limit8(v, inv_scale, a.limit);
      codes[k] = look_up8<C>(v, inv_scale, state.table);
    }
    return;
  }
  const float inv_scale = 1.0f / a.scale.value<H>();
#pragma unroll
  for (int k = 0; k < 4; ++k) codes[k] = encode_edge<X, C, H>(a, row + k, col, inv_scale, state);
}

__device__ __forceinline__ void store_rows(const TileCodes& a, int64_t row, int64_t col,
                                           const uint2 (&codes)[4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (row + k >= a.rows || col >= a.cols) continue;
    uint8_t* to = a.by_row + (row + k) * a.cols + col;
    if (a.aligned_rows && col + kEight <= a.cols) {
      *reinterpret_cast<uint2*>(to) = codes[k];
      continue;
    }
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
      const uint32_t word = j < 4 ? codes[k].x : codes[k].y;
      if (col + j < a.cols) to[j] = static_cast<uint8_t>(word >> (8 * (j % 4)));
    }
  }
}

// Word j of the result: byte j of each of the four.
__device__ __forceinline__ uint4 turn_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), cd_low = __byte_perm(c, d, 0x5140);
  const uint32_t ab_high = __byte_perm(a, b, 0x7362), cd_high = __byte_perm(c, d, 0x7362);
  return {__byte_perm(ab_low, cd_low, 0x5410), __byte_perm(ab_low, cd_low, 0x7632),
          __byte_perm(ab_high, cd_high, 0x5410), __byte_perm(ab_high, cd_high, 0x7632)};
}

__device__ __forceinline__ int tile_word(int col, int word) {
  return col * kTileWords + (((word / 4) ^ (col / kEight)) * 4) + word % 4;
}

// 16 rows of one column.
__device__ __forceinline__ void store_transposed(const TileCodes& a, int64_t col, int64_t row,
                                                 uint4 codes) {
  if (col >= a.cols || row >= a.padded_rows) return;
  uint8_t* to = a.transposed + col * a.padded_rows + row;
  if (a.aligned_transposed && row + 16 <= a.padded_rows) {
    *reinterpret_cast<uint4*>(to) = codes;
    return;
  }
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    if (row + j < a.padded_rows) to[j] = static_cast<uint8_t>(words[j / 4] >> (8 * (j % 4)));
  }
}

template <Dtype X, Dtype C, ScaleFrom H>
__device__ __forceinline__ void quantize_tile(const TileCodes& a, int64_t at, TileState& state) {
  uint32_t* tile = state.tile;
  const int64_t first_row = at / a.tiles_across * kTileRows;
  const int64_t first_col = at % a.tiles_across * kTileCols;
  const int eight = threadIdx.x % 8, word = threadIdx.x / 8;
  const int64_t row = first_row + word * 4, col = first_col + eight * kEight;
  uint2 codes[4];
  encode_four_rows<X, C, H>(a, row, col, state, codes);
  if (a.by_row != nullptr) store_rows(a, row, col, codes);
  const uint4 left = turn_bytes(codes[0].x, codes[1].x, codes[2].x, codes[3].x);
  const uint4 right = turn_bytes(codes[0].y, codes[1].y, codes[2].y, codes[3].y);
  const uint32_t words[8] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};
#pragma unroll
  for (int j = 0; j < kEight; ++j) tile[tile_word(eight * kEight + j, word)] = words[j];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kTileCols * kTileRows / 16 / kThreads; ++k) {
    const int piece = threadIdx.x + k * kThreads;
    const int column = piece / 8, chunk = piece % 8;
    const auto* from = reinterpret_cast<const uint4*>(tile + tile_word(column, chunk * 4));
    store_transposed(a, first_col + column, first_row + chunk * 16, *from);
  }
}

template <Dtype X, Dtype C, ScaleFrom H>
__global__ void __launch_bounds__(kThreads, (kBlocks<X, H>))
    quantize_tiles(const __grid_constant__ TileCodes a) {
  alignas(16) __shared__ uint32_t tile[kTileCols * kTileWords];
  TileState state{.table = code_table<C>(), .tile = tile, .found = {}};
  wait_for_previous();
  const int64_t first = int64_t{blockIdx.x} * kPieces<C>;
  const int64_t n = min(int64_t{kPieces<C>}, a.n_tiles - first);
  for (int64_t k = 0; k < n; ++k) {
    if (k > 0) __syncthreads();  // all have read the tile before
    quantize_tile<X, C, H>(a, first + k, state);
  }
  end_scale<H>(a.scale, state.found);
}

template <Dtype X, Dtype C, ScaleFrom H>
void launch_tiles(const QuantizeParams& p, const QuantizeCall& call) {
  TileCodes a{.x = call.x,
              .scale = call.scale,
              .by_row = call.by_row,
              .transposed = call.transposed,
              .rows = p.rows,
              .cols = p.cols,
              .padded_rows = p.padded_rows,
              .tiles_across = ceil_div(p.cols, kTileCols),
              .n_tiles = ceil_div(p.cols, kTileCols) * ceil_div(p.padded_rows, kTileRows),
              .limit = p.limit};
  a.aligned_x = is_aligned(a.x, 16) && p.cols * dtype_bytes(X) % 16 == 0;
  a.aligned_rows = is_aligned(a.by_row, 8) && p.cols % 8 == 0;
  a.aligned_transposed = is_aligned(a.transposed, 16) && p.padded_rows % 16 == 0;
  const unsigned grid = grid_of(std::max<int64_t>(ceil_div(a.n_tiles, kPieces<C>), 1));
  launch_early(quantize_tiles<X, C, H>, {grid, kThreads}, call.stream, a);
}

template <Dtype X, Dtype C, ScaleFrom H>
void launch_rows(const QuantizeParams& p, const QuantizeCall& call) {
  RowCodes a{.x = call.x,
             .scale = call.scale,
             .codes = call.by_row,
             .n = p.rows * p.cols,
             .limit = p.limit};
  a.aligned = is_aligned(a.x, 16) && is_aligned(a.codes, 8);
  const unsigned grid = grid_of(std::max<int64_t>(ceil_div(a.n, kChunk * kPieces<C>), 1));
  launch_early(quantize_rows<X, C, H>, {grid, kThreads}, call.stream, a);
}

void run_quantize(const QuantizeParams& p, const Launch& args) {
  if (p.cols == 0 || (p.transposed ? p.padded_rows : p.rows) == 0) return;
  QuantizeCall call{
      .x = args.operands[0], .scale = {.given = args.in<float>(1)}, .stream = args.stream};
  if (p.by_row) call.by_row = args.out<uint8_t>(0);
  if (p.transposed) call.transposed = args.out<uint8_t>(p.by_row ? 1 : 0);
  const bool plain = p.rounding == Rounding::near && is_gemm_operand(p.codes);
  plain ? launch_quantize(p, call) : launch_rounded(p, call);
}

constexpr KernelEntry kRows[] = {
    {KernelId::amax, prepare_amax},
    {KernelId::any_of, prepare_any_of},
    {KernelId::quant_scale, prepare_scale},
    {KernelId::delayed_scale, prepare_scale},
    {KernelId::periodic_scale, prepare_periodic_scale},
    {KernelId::quantize, stateless<QuantizeParams, run_quantize>},
    {KernelId::quantize_both, stateless<QuantizeParams, run_quantize>},
    {KernelId::amax_quantize, prepare_amax_quantize},
    {KernelId::quantize_groups, prepare_groups},
    {KernelId::quantize_blocks, prepare_blocks},
    {KernelId::fake_quantize, prepare_fake_quantize},
    {KernelId::add_quantize, prepare_groups},
    {KernelId::dequantize, prepare_dequantize},
};

}  // namespace

void launch_quantize(const QuantizeParams& p, const QuantizeCall& call) {
  visit_high_precision(p.x, [&]<Dtype X>() {
    visit_codes(p.codes, [&]<Dtype C>() {
      const auto launch = [&]<ScaleFrom H>() {
        p.transposed ? launch_tiles<X, C, H>(p, call) : launch_rows<X, C, H>(p, call);
      };
      switch (call.scale.from) {
        case ScaleFrom::given:
          return launch.template operator()<ScaleFrom::given>();
        case ScaleFrom::joined:
          return launch.template operator()<ScaleFrom::joined>();
        case ScaleFrom::amax:
          return launch.template operator()<ScaleFrom::amax>();
        case ScaleFrom::history:
          return launch.template operator()<ScaleFrom::history>();
      }
    });
  });
}

std::span<const KernelEntry> quantize_kernels() {
  return kRows;
}

}  // namespace octet::cuda
