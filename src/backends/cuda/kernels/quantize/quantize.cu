// Codes of a tensor by its one scale, by row and transposed: params/quantize.h.
#include <algorithm>

#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/quantize/quantize_eights.cuh"
#include "backends/cuda/kernels/quantize/quantize_source.cuh"

namespace octet::cuda {
namespace {

constexpr int kPacks = 4;  // eights of a thread
constexpr int kChunk = kThreads * kEight * kPacks;
// X: of x; real where it is known at run time, and the format and the rounding may be any.
template <Dtype X>
constexpr bool kAny = X == Dtype::real;
// Blocks of a multiprocessor at least: registers for the loads under way.
template <Dtype X, ScaleFrom H>
constexpr int kBlocks = !kAny<X> && (X == Dtype::f32 || H != ScaleFrom::known) ? 4 : 5;

struct CodesTask {
  QuantizeParams p;
  ScaleSource scale;
  const void* x;
  const uint32_t* draw;  // of rounding sr: seed, step, micro-batch
  uint8_t* by_row;       // nullptr: not wanted
  uint8_t* transposed;   // nullptr: not wanted
  int64_t n, tiles_across, n_tiles;
  bool aligned_x = false, aligned_rows = false, aligned_transposed = false;
};
// State that a block keeps over its chunks or tiles.
struct State {
  const uint8_t* table;
  Magnitude found;
};

// hif8_nearest() as a table: three fraction bits at most and ties away from zero leave the choice
// to sign, exponent and the first four bits of the fraction. A NaN has one of these four set, as
// every product has.
constexpr int kHif8Shift = 19;
constexpr int kHif8Entries = 1 << (32 - kHif8Shift);
struct alignas(16) Hif8Table {
  uint8_t code[kHif8Entries];
};
constexpr uint32_t hif8_entry(uint32_t index) {
  return hif8_nearest(float_of(index << kHif8Shift));
}
constexpr Hif8Table make_hif8_table() {
  Hif8Table table{};
  for (uint32_t i = 0; i < kHif8Entries; ++i) table.code[i] = static_cast<uint8_t>(hif8_entry(i));
  return table;
}

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

// Calls store(k, codes) for the eights that have just been loaded, and joins x where that is
// wanted. first: the place of the first element; the next eight is a row behind (kAny).
template <Dtype X, Dtype C, ScaleFrom H, typename F>
__device__ __forceinline__ void encode_loaded(const CodesTask& a, const Raw8 (&raw)[kPacks],
                                              int64_t first, State& state, F&& store) {
#pragma unroll
  for (int k = 0; k < kPacks; ++k) pin(raw[k]);
  const float inv_scale = 1.0f / a.scale.value<H>();
  if constexpr (H == ScaleFrom::joined) join_all<X>(state.found, raw);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    float v[8];
    widen8(raw[k], known(X, a.p.x), v);
    limit8(v, inv_scale, a.p.limit);
    if constexpr (kAny<X>) {
#pragma unroll
      for (int j = 0; j < kEight; ++j) v[j] *= inv_scale;
      store(k, encode_rounded8<C>(v, a.p.rounding, a.p.source,
                                  {drawn_stream(a.p.stream, a.draw), first + k * a.p.cols}));
    } else {
      store(k, look_up8<C>(v, inv_scale, state.table));
    }
  }
}

template <Dtype X, Dtype C, ScaleFrom H>
__device__ __forceinline__ void quantize_chunk(const CodesTask& a, int64_t base, State& state) {
  if (a.aligned_x && a.aligned_rows && base + kChunk <= a.n) {
    Raw8 raw[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      raw[k] = load_raw8(a.x, base + (k * kThreads + threadIdx.x) * kEight, X);
    encode_loaded<X, C, H>(a, raw, base, state, [&](int k, uint2 codes) {
      const int64_t i = base + (k * kThreads + threadIdx.x) * kEight;
      *reinterpret_cast<uint2*>(a.by_row + i) = codes;
    });
    return;
  }
  const float inv_scale = 1.0f / a.scale.value<H>();
  for (int64_t i = base + threadIdx.x; i < min(a.n, base + kChunk); i += kThreads) {
    const float x = load_float(a.x, i, X);
    if constexpr (H == ScaleFrom::joined) state.found.join(x);
    a.by_row[i] = static_cast<uint8_t>(look_up<C>(limited(x * inv_scale, a.p.limit), state.table));
  }
}

template <Dtype X, Dtype C, ScaleFrom H>
__global__ void __launch_bounds__(kThreads, (kBlocks<X, H>))
    quantize_rows(const __grid_constant__ CodesTask a) {
  State state{.table = code_table<C>(), .found = {}};
  wait_for_previous();
  for (int k = 0; k < kPieces<C>; ++k) {
    const int64_t base = (int64_t{blockIdx.x} * kPieces<C> + k) * kChunk;
    quantize_chunk<X, C, H>(a, base, state);
  }
  end_scale<H>(a.scale, state.found);
}

// A block turns a tile of 128 rows and 64 columns. A thread encodes eight columns of four rows and
// turns them in registers: a word of a column's four rows. The words of a column lie in shared
// memory in eight chunks of 16 bytes, chunk c of column j at c ^ (j / 8), so that neither the
// writes of a warp (eight columns, four words) nor its reads (16 bytes each) meet in a bank.
constexpr int kTileRows = 128;
constexpr int kTileCols = 64;
constexpr int kTileWords = kTileRows / 4;

// Codes of four rows, of zero below the matrix.
template <Dtype X, Dtype C, ScaleFrom H>
__device__ __forceinline__ void encode_four_rows(const CodesTask& a, int64_t row, int64_t col,
                                                 State& state, uint2 (&codes)[4]) {
  const bool whole = a.aligned_x && row + 4 <= a.p.rows && col + kEight <= a.p.cols;
  Raw8 raw[4];
  if (whole) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      raw[k] = load_raw8(a.x, (row + k) * a.p.cols + col, known(X, a.p.x));
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int64_t n = row + k < a.p.rows ? a.p.cols - col : 0;
      raw[k] = load_some(a.x, (row + k) * a.p.cols + col, n, known(X, a.p.x));
    }
  }
  encode_loaded<X, C, H>(a, raw, row * a.p.cols + col, state,
                         [&](int k, uint2 made) { codes[k] = made; });
  if (whole) return;
  constexpr uint32_t kZeros = kFormatRow<C>.zero_code * 0x01010101u;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (row + k >= a.p.rows) codes[k] = {kZeros, kZeros};
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
__device__ __forceinline__ void store_transposed(const CodesTask& a, int64_t col, int64_t row,
                                                 uint4 codes) {
  if (col >= a.p.cols || row >= a.p.padded_rows) return;
  uint8_t* to = a.transposed + col * a.p.padded_rows + row;
  if (a.aligned_transposed && row + 16 <= a.p.padded_rows) {
    *reinterpret_cast<uint4*>(to) = codes;
    return;
  }
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    if (row + j < a.p.padded_rows) to[j] = static_cast<uint8_t>(words[j / 4] >> (8 * (j % 4)));
  }
}

template <Dtype X, Dtype C, ScaleFrom H>
__device__ __forceinline__ void quantize_tile(const CodesTask& a, int64_t at, State& state,
                                              uint32_t* tile) {
  const int64_t first_row = at / a.tiles_across * kTileRows;
  const int64_t first_col = at % a.tiles_across * kTileCols;
  const int eight = threadIdx.x % 8, word = threadIdx.x / 8;
  const int64_t row = first_row + word * 4, col = first_col + eight * kEight;
  uint2 codes[4];
  encode_four_rows<X, C, H>(a, row, col, state, codes);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (a.by_row == nullptr || row + k >= a.p.rows) continue;
    store_codes(a.by_row + (row + k) * a.p.cols + col, codes[k], a.p.cols - col, a.aligned_rows);
  }
  if (kAny<X> && a.transposed == nullptr) return;
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
    quantize_tiles(const __grid_constant__ CodesTask a) {
  alignas(16) __shared__ uint32_t tile[kTileCols * kTileWords];
  State state{.table = kAny<X> ? nullptr : code_table<C>(), .found = {}};
  wait_for_previous();
  const int64_t first = int64_t{blockIdx.x} * kPieces<C>;
  const int64_t n = min(int64_t{kPieces<C>}, a.n_tiles - first);
  for (int64_t k = 0; k < n; ++k) {
    if (k > 0) __syncthreads();  // all have read the tile before
    quantize_tile<X, C, H>(a, first + k, state, tile);
  }
  end_scale<H>(a.scale, state.found);
}

template <Dtype X, Dtype C, ScaleFrom H>
void launch_codes(const CodesTask& a, cudaStream_t stream) {
  const int64_t n = a.p.by_tile ? a.n_tiles : ceil_div(a.n, kChunk);
  const EarlyGrid grid{grid_of(std::max<int64_t>(ceil_div(n, kPieces<C>), 1)), kThreads};
  if constexpr (!kAny<X>) {
    if (!a.p.by_tile) return launch_early(quantize_rows<X, C, H>, grid, stream, a);
  }
  launch_early(quantize_tiles<X, C, H>, grid, stream, a);
}

void run_quantize(const QuantizeParams& p, const Launch& args) {
  if (p.cols == 0 || (p.transposed ? p.padded_rows : p.rows) == 0) return;
  launch_quantize(p, {.given = args.in<float>(1)}, args, p.by_row ? 1 : 0);
}

constexpr KernelEntry kRows[] = {
    {KernelId::amax, prepare_amax},
    {KernelId::any_of, prepare_any_of},
    {KernelId::quant_scale, prepare_scale},
    {KernelId::delayed_scale, prepare_scale},
    {KernelId::periodic_scale, stateless<PeriodicScaleParams, run_periodic_scale>},
    {KernelId::quantize, stateless<QuantizeParams, run_quantize>},
    {KernelId::quantize_both, stateless<QuantizeParams, run_quantize>},
    {KernelId::amax_quantize, prepare_amax_quantize},
    {KernelId::quantize_groups, stateless<GroupParams, run_groups>},
    {KernelId::quantize_blocks, stateless<BlockParams, run_blocks>},
    {KernelId::fake_quantize, stateless<FakeQuantizeParams, run_fake>},
    {KernelId::add_quantize, stateless<GroupParams, run_groups>},
    {KernelId::dequantize, stateless<DequantizeParams, run_dequantize>},
};

}  // namespace

void launch_quantize(const QuantizeParams& p, const ScaleSource& scale, const Launch& args,
                     int transposed_at) {
  CodesTask a{.p = p,
              .scale = scale,
              .x = args.operands[0],
              .draw = p.rounding == Rounding::sr ? args.in<uint32_t>(2) : nullptr,
              .by_row = p.by_row ? args.out<uint8_t>(0) : nullptr,
              .transposed = p.transposed ? args.out<uint8_t>(transposed_at) : nullptr,
              .n = p.rows * p.cols,
              .tiles_across = ceil_div(p.cols, kTileCols)};
  a.n_tiles = a.tiles_across * ceil_div(p.transposed ? p.padded_rows : p.rows, kTileRows);
  a.aligned_transposed = is_aligned(a.transposed, 16) && p.padded_rows % 16 == 0;
  a.aligned_x = is_aligned(a.x, 16) && (!p.by_tile || p.cols * dtype_bytes(p.x) % 16 == 0);
  a.aligned_rows = is_aligned(a.by_row, 8) && (!p.by_tile || p.cols % kEight == 0);
  if (p.is_any) {
    return visit_format(p.codes, [&]<Dtype C>() {
      launch_codes<Dtype::real, C, ScaleFrom::given>(a, args.stream);
    });
  }
  visit_high_precision(p.x, [&]<Dtype X>() {
    visit_codes(p.codes, [&]<Dtype C>() {
      switch (scale.from) {
        case ScaleFrom::given:
          return launch_codes<X, C, ScaleFrom::given>(a, args.stream);
        case ScaleFrom::joined:
          return launch_codes<X, C, ScaleFrom::joined>(a, args.stream);
        case ScaleFrom::known:
          return launch_codes<X, C, ScaleFrom::known>(a, args.stream);
      }
    });
  });
}

std::span<const KernelEntry> quantize_kernels() {
  return kRows;
}

}  // namespace octet::cuda
