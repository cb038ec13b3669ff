#include "backends/cpu/gemm/gemm.h"

#include <array>

#include "backends/cpu/codec/codec.h"
#include "backends/cpu/common/isa.h"
#include "backends/cpu/gemm/gemm_epilogue.h"
#include "backends/cpu/gemm/gemm_rows.h"
#include "backends/cpu/gemm/pack_codes.h"
#include "backends/cpu/gemm/tile_gemm.h"
#include "base/error.h"
#include "formats/table.h"

namespace octet::cpu {
namespace {

constexpr int64_t kPackDepth = 512, kPackRows = 64;
constexpr int64_t kPackedSliceBytes = int64_t{16} << 20;  // of one packed operand at a time
// Rows of codes are decoded tile by tile where they are multiplied, as long as a tile and its
// factor stay in the second-level cache.
constexpr int64_t kRowTileBytes = int64_t{1} << 20;
constexpr size_t kTileNumberBytes = 64;

// Large tiles use the caches best; small products get small tiles, so that every thread has work.
struct TileSize {
  int64_t m, n;
};
// Columns that a product of n is filled up to; of few rows zeros cost little.
constexpr int64_t kNarrowRows = 512;
int64_t padded_columns(int64_t m, int64_t n) {
  const bool is_narrow = n < kTileColumns && m >= kNarrowRows && row_sums() == RowSums::library;
  return round_up(n, is_narrow ? kNarrowColumns : kTileColumns);
}
int64_t padded_depth(const GemmSpec& spec, Dtype compute) {
  const bool is_narrow = spec.tiles == GemmTiles::large && spec.k <= kNarrowDepth;
  return round_up(spec.k, is_narrow && has_narrow_depth(compute) ? kNarrowDepth : kTileDepth);
}
TileSize tile_size(const GemmSpec& spec) {
  const int64_t m = spec.m, n = spec.n, padded = padded_columns(m, n);
  TileSize tile{256, 256};
  if (spec.tiles == GemmTiles::large) {
    const bool is_whole = spec.c_row == padded;
    return {std::min<int64_t>(padded <= kTileColumns ? 512 : 256, m),
            is_whole ? padded : std::min(tile.n, padded)};
  }
  const auto count = [&] { return ceil_div(m, tile.m) * ceil_div(n, tile.n); };
  constexpr int64_t kEnough = 32;
  if (count() < kEnough) tile.m = 128;
  if (count() < kEnough) tile.n = 128;
  if (count() < kEnough) tile.m = 64;
  if (count() < kEnough) tile.n = 64;
  return {std::min(tile.m, m), std::min(tile.n, padded)};
}

// Type of a decoded operand: every finite code of these formats is exact in bf16.
Dtype decoded(Dtype dtype) {
  return is_gemm_operand(dtype) ? Dtype::bf16 : dtype;
}

// The type of the products.
Dtype checked_compute(const GemmSpec& s) {
  for (const Dtype dtype : {decoded(s.a), decoded(s.b), s.c}) {
    if (dtype != Dtype::f32 && dtype != Dtype::bf16) {
      throw Error(ErrorCode::invalid_argument,
                  "[gemm] expected f32, bf16 or 8-bit operands and a wide result, got {}",
                  dtype_name(dtype));
    }
  }
  const bool both_bf16 = decoded(s.a) == Dtype::bf16 && decoded(s.b) == Dtype::bf16;
  return both_bf16 ? bf16_compute_dtype() : Dtype::f32;
}

// The order in which GemmRows gives the bits of many rows, where it is the kernel for these.
std::optional<DotOrder> few_rows_order(const GemmSpec& spec, Dtype compute) {
  if (row_sums() != RowSums::same || spec.m >= kTileRows) return {};
  const int64_t k = round_up(spec.k, kTileDepth);
  const DotOrder order = compute == Dtype::bf16 ? library_dot_order(k)
                                                : DotOrder{DotChain::steps, library_sum_order(k)};
  if (spec.m >= GemmRows::most_rows(compute, order.chain)) return {};
  return GemmRows::applies(spec, order) ? std::optional(order) : std::nullopt;
}

// A run of output rows or columns, cut in tiles of one size and a smaller last one.
struct Slices {
  int64_t size = 0, tile = 1;
  int64_t count() const { return ceil_div(size, tile); }
  int64_t begin(int64_t i) const { return i * tile; }
  int64_t length(int64_t i) const { return std::min(tile, size - i * tile); }
};

// Codes [rows, cols] to dense bf16.
void decode_rows(In codes, int64_t stride, RowRange range, uint16_t* dst, ThreadPool& pool) {
  const int64_t block = std::max<int64_t>(1, kBlockElems / std::max<int64_t>(1, range.cols));
  const Codec codec = simd_codec(codes.dtype);
  for_blocks(pool, range.row_end, block, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const auto* const row = static_cast<const uint8_t*>(codes.data) + r * stride;
      codec.decode_bf16(row, static_cast<size_t>(range.cols), dst + r * range.cols);
    }
  });
}

// Storage rows (or columns) [begin, begin + size) of an operand; `across` is the length of the
// other side. Codes are decoded into scratch unless they are packed as they lie.
struct Strip {
  bool of_rows, as_they_lie;
  int64_t begin, size, across;
};

// Tiles of an operand that are packed at a time: the first, the rows or columns of the result that
// they hold, and in how many tasks they are packed, by runs along the reduction.
struct Slice {
  MatrixIn matrix;
  int64_t tile = 0, size = 0, n_tasks = 0, runs = 1;
};

// An output tile, and the first tiles of the slices of A and B that are packed.
struct Place {
  int64_t i, j, i0 = 0, j0 = 0;
};

}  // namespace

struct Gemm::State {
  GemmSpec spec;
  Dtype compute = Dtype::f32;
  Slices rows, cols;
  int64_t k_padded = 0;
  int64_t slice_rows = 0, slice_cols = 0;  // how many tiles of A and B are packed at a time
  bool pack_a = false;
  bool direct_a = false, direct_b = false;  // codes go from where they lie into packed operands
  bool decode_tiles = false;                // each thread packs the row tile that it multiplies
  // [last row tile?][last column tile?]; equal shapes share index 0.
  std::array<std::array<std::unique_ptr<TileGemm>, 2>, 2> tiles;
  size_t a_bytes = 0, b_bytes = 0, code_bytes = 0, acc_bytes = 0, tile_scratch = 0;
  size_t row_tile_bytes = 0;  // a thread's own row tile, behind the number of the tile
  int n_threads = 1;
  std::unique_ptr<GemmRows> few_rows;  // instead of all of the above

  const TileGemm& tile(int64_t i, int64_t j) const {
    const bool short_m = rows.length(i) != rows.tile;
    const bool short_n = round_up(cols.length(j), column_unit()) != cols.tile;
    return *tiles[short_m][short_n];
  }
  // The whole tile if it has few columns.
  int64_t column_unit() const { return std::min(cols.tile, kTileColumns); }
  int64_t elem() const { return bytes_of(compute, 1); }
  int64_t b_tile_bytes() const { return cols.tile * round_up(k_padded, kTileDepth) * elem(); }
  int64_t a_row_bytes() const { return k_padded * elem(); }
  uint16_t* codes(const GemmArgs& args) const {
    return reinterpret_cast<uint16_t*>(static_cast<char*>(args.scratch) + a_bytes + b_bytes);
  }
  char* own(const GemmArgs& args, int thread) const {
    return static_cast<char*>(args.scratch) + a_bytes + b_bytes + code_bytes +
           static_cast<size_t>(thread) * own_bytes();
  }
  size_t own_bytes() const { return acc_bytes + tile_scratch + row_tile_bytes; }
  int64_t* tile_number(const GemmArgs& args, int thread) const {
    return reinterpret_cast<int64_t*>(own(args, thread) + acc_bytes + tile_scratch);
  }

  void make_tiles();
  bool has_pairs() const;
  void choose_packing();
  MatrixIn strip_of(const GemmArgs& args, MatrixIn whole, Strip strip, ThreadPool& pool) const;
  Slice columns_of(const GemmArgs& args, int64_t j0, int64_t j1, ThreadPool& pool) const;
  Slice rows_of(const GemmArgs& args, int64_t i0, int64_t i1, ThreadPool& pool) const;
  void pack_columns(const GemmArgs& args, const Slice& slice, int64_t task) const;
  void pack_row_block(const GemmArgs& args, const Slice& slice, int64_t task) const;
  void pack(const GemmArgs& args, const Place& end, const Place& begin, ThreadPool& pool) const;
  const char* row_tile(const GemmArgs& args, int64_t i, int thread) const;
  void multiply(const GemmArgs& args, const Place& place, int thread) const;
  bool is_whole(const GemmArgs& args, const TileGemm& product) const;
  void finish(const GemmArgs& args, int64_t i, int64_t j, const float* acc, int64_t stride) const;
};

void Gemm::State::make_tiles() {
  size_t scratch = 0;
  for (int short_m = 0; short_m < 2; ++short_m) {
    for (int short_n = 0; short_n < 2; ++short_n) {
      const int64_t m = short_m ? rows.size % rows.tile : rows.tile;
      const int64_t n = short_n ? round_up(cols.size % cols.tile, column_unit()) : cols.tile;
      if (m == 0 || n == 0 || (short_n && n == cols.tile)) continue;
      tiles[short_m][short_n] =
          std::make_unique<TileGemm>(TileShape{m, n, k_padded, compute, false}, n_threads);
      scratch = std::max(scratch, tiles[short_m][short_n]->scratch_bytes());
    }
  }
  tile_scratch = scratch;
}

bool Gemm::State::has_pairs() const {
  for (const auto& row : tiles) {
    for (const auto& product : row) {
      if (product == nullptr) continue;
      const PanelLayout& panels = product->panels();
      if (panels.interleave != 2 || panels.width != kCodeBlock) return false;
    }
  }
  return true;
}

// Operands to pack, their places, and the sizes of the parts of the scratch.
void Gemm::State::choose_packing() {
  direct_a = is_gemm_operand(spec.a) && compute == Dtype::bf16;
  direct_b = is_gemm_operand(spec.b) && compute == Dtype::bf16 && has_pairs();
  const bool as_it_lies = spec.trans_a == Transpose::no;
  const int64_t tile_bytes = a_row_bytes() * rows.tile;
  decode_tiles = direct_a && as_it_lies && tile_bytes <= kRowTileBytes;
  pack_a = !decode_tiles && !(as_it_lies && spec.a == compute && spec.a_stride() == k_padded);
  slice_cols = std::clamp<int64_t>(kPackedSliceBytes / b_tile_bytes(), 1, cols.count());
  slice_rows = rows.count();
  if (pack_a) {
    slice_rows = std::clamp<int64_t>(kPackedSliceBytes / tile_bytes, 1, rows.count());
    a_bytes = static_cast<size_t>(tile_bytes * slice_rows);
  }
  if (decode_tiles) row_tile_bytes = kTileNumberBytes + static_cast<size_t>(tile_bytes);
  b_bytes = static_cast<size_t>(b_tile_bytes() * slice_cols);
  // The two operands are decoded one after the other, into the same place.
  const int64_t a_codes =
      is_gemm_operand(spec.a) && !direct_a ? slice_rows * rows.tile * spec.k : 0;
  const int64_t b_codes =
      is_gemm_operand(spec.b) && !direct_b ? slice_cols * cols.tile * spec.k : 0;
  code_bytes = static_cast<size_t>(round_up(std::max(a_codes, b_codes) * 2, 64));
}

Gemm::Gemm(const GemmSpec& spec, int n_threads) : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.spec = spec;
  s.n_threads = n_threads;
  s.compute = checked_compute(spec);
  if (spec.m == 0 || spec.n == 0) return;
  const TileSize tile = tile_size(spec);
  s.rows = {spec.m, tile.m};
  s.cols = {spec.n, tile.n};
  s.k_padded = padded_depth(spec, s.compute);
  s.acc_bytes = static_cast<size_t>(tile.m * tile.n) * sizeof(float);
  if (spec.k == 0) return;
  if (const auto order = few_rows_order(spec, s.compute)) {
    s.few_rows = std::make_unique<GemmRows>(spec, *order, n_threads);
    s.rows = {spec.m, spec.m};
    s.cols = {spec.n, s.few_rows->columns()};
    return;
  }
  s.make_tiles();
  s.choose_packing();
}

int64_t Gemm::whole_row(int64_t n) {
  return round_up(n, kTileColumns);
}

size_t Gemm::scratch_bytes() const {
  const State& s = *state_;
  if (s.few_rows != nullptr) return s.few_rows->scratch_bytes();
  return s.a_bytes + s.b_bytes + s.code_bytes + static_cast<size_t>(s.n_threads) * s.own_bytes();
}

// The strip as a matrix of its own: in place, or decoded into scratch.
MatrixIn Gemm::State::strip_of(const GemmArgs& args, MatrixIn whole, Strip strip,
                               ThreadPool& pool) const {
  whole.data = offset(whole.data, strip.begin * (strip.of_rows ? whole.stride : 1));
  if (!is_gemm_operand(whole.data.dtype) || strip.as_they_lie) return whole;
  const int64_t rows = strip.of_rows ? strip.size : strip.across;
  const int64_t cols = strip.of_rows ? strip.across : strip.size;
  decode_rows(whole.data, whole.stride, {0, rows, cols, cols}, codes(args), pool);
  return {{codes(args), Dtype::bf16}, cols, whole.transpose};
}

// The column tiles [j0, j1), packed panel by panel and in runs of rows.
Slice Gemm::State::columns_of(const GemmArgs& args, int64_t j0, int64_t j1,
                              ThreadPool& pool) const {
  const int64_t first = cols.begin(j0), size = std::min(spec.n, cols.begin(j1)) - first;
  const int64_t runs = ceil_div(spec.k, kPackDepth);
  return {strip_of(args, {{args.b, spec.b}, spec.b_stride(), spec.trans_b},
                   {spec.trans_b == Transpose::yes, direct_b, first, size, spec.k}, pool),
          j0, size, ceil_div(size, kTileColumns) * runs, runs};
}

// The row tiles [i0, i1), packed densely.
Slice Gemm::State::rows_of(const GemmArgs& args, int64_t i0, int64_t i1, ThreadPool& pool) const {
  const int64_t first = rows.begin(i0), size = std::min(spec.m, rows.begin(i1)) - first;
  const bool transposed = spec.trans_a == Transpose::yes;
  const int64_t runs = direct_a && transposed ? ceil_div(spec.k, kPackDepth) : 1;
  return {strip_of(args, {{args.a, spec.a}, spec.a_stride(), spec.trans_a},
                   {!transposed, direct_a, first, size, spec.k}, pool),
          i0, size, ceil_div(size, kPackRows) * runs, runs};
}

void Gemm::State::pack_columns(const GemmArgs& args, const Slice& slice, int64_t task) const {
  const int64_t n = task / slice.runs * kTileColumns, run = task % slice.runs;
  const int64_t j = n / cols.tile, in_tile = n % cols.tile;
  const PanelLayout& layout = tile(0, slice.tile + j).panels();
  // A panel as wide as the tile (a plain b) is packed by its first strip alone.
  if (in_tile % layout.width != 0) return;
  const PanelRange range{run * kPackDepth, std::min(spec.k, (run + 1) * kPackDepth), n,
                         std::min(slice.size, n + layout.width)};
  char* const to = static_cast<char*>(args.scratch) + a_bytes + j * b_tile_bytes() +
                   in_tile / layout.width * layout.panel_elems() * elem();
  if (direct_b) {
    pack_code_panel(slice.matrix, layout, range, run + 1 == slice.runs,
                    reinterpret_cast<uint16_t*>(to));
  } else {
    pack_panel(slice.matrix, layout, range, run + 1 == slice.runs, to);
  }
}

void Gemm::State::pack_row_block(const GemmArgs& args, const Slice& slice, int64_t task) const {
  const int64_t begin = task / slice.runs * kPackRows, run = task % slice.runs;
  const int64_t end = std::min(slice.size, begin + kPackRows);
  char* const to = static_cast<char*>(args.scratch) + begin * a_row_bytes();
  if (!direct_a) {
    return pack_rows(slice.matrix, {begin, end, spec.k, k_padded}, {to, compute});
  }
  const bool last = run + 1 == slice.runs;
  const int64_t k = run * kPackDepth;
  const CodeRows range{
      begin, end, k, last ? spec.k : k + kPackDepth, last ? k_padded : k + kPackDepth, k_padded};
  pack_code_rows(slice.matrix, range, reinterpret_cast<uint16_t*>(to) + k);
}

// Packs the tiles of B that begin at begin.j, with the first tiles of A alone, and those of A.
void Gemm::State::pack(const GemmArgs& args, const Place& end, const Place& begin,
                       ThreadPool& pool) const {
  Slice b, a;
  if (begin.i == 0) b = columns_of(args, begin.j, end.j, pool);
  const auto pack_b = [&](int64_t task, int) { pack_columns(args, b, task); };
  // The two are decoded into the same place.
  const bool apart = code_bytes > 0;
  if (apart) for_tiles(pool, b.n_tasks, pack_b);
  if (pack_a) a = rows_of(args, begin.i, end.i, pool);
  const int64_t n_first = apart ? 0 : b.n_tasks;
  for_tiles(pool, n_first + a.n_tasks, [&](int64_t task, int thread) {
    if (task < n_first) return pack_b(task, thread);
    pack_row_block(args, a, task - n_first);
  });
}

void Gemm::State::finish(const GemmArgs& args, int64_t i, int64_t j, const float* acc,
                         int64_t stride) const {
  const int64_t row = rows.begin(i), col = cols.begin(j);
  const int64_t at = row * spec.c_stride() + col;
  GemmEpilogue e;
  e.acc = acc;
  e.acc_stride = stride;
  e.c = offset(Out{args.c, spec.c}, at);
  e.stride = spec.c_stride();
  for (const float* factor : {args.scale_a, args.scale_b, args.alpha}) {
    if (factor != nullptr) e.alpha *= *factor;
  }
  e.bias = offset(args.bias, col);
  e.addend = offset(args.addend, at);
  gemm_epilogue(e, rows.length(i), cols.length(j));
}

// The row tile in bf16, in the thread's own scratch: it is there already where the thread's last
// tile was in the same rows.
const char* Gemm::State::row_tile(const GemmArgs& args, int64_t i, int thread) const {
  int64_t* const number = tile_number(args, thread);
  char* const to = reinterpret_cast<char*>(number) + kTileNumberBytes;
  if (*number == i) return to;
  *number = i;
  const CodeRows range{rows.begin(i), rows.begin(i) + rows.length(i), 0, spec.k, k_padded,
                       k_padded};
  pack_code_rows({{args.a, spec.a}, spec.a_stride(), Transpose::no}, range,
                 reinterpret_cast<uint16_t*>(to));
  return to;
}

// True if the sums are the result as they are, in rows of its length.
bool Gemm::State::is_whole(const GemmArgs& args, const TileGemm& product) const {
  const bool is_bare = args.scale_a == nullptr && args.scale_b == nullptr &&
                       args.alpha == nullptr && !args.bias && !args.addend;
  return is_bare && spec.c == Dtype::f32 && cols.count() == 1 &&
         product.shape().n == spec.c_stride();
}

void Gemm::State::multiply(const GemmArgs& args, const Place& place, int thread) const {
  const auto [i, j, i0, j0] = place;
  char* const scratch = static_cast<char*>(args.scratch);
  char* const mine = own(args, thread);
  float* const acc = reinterpret_cast<float*>(mine);
  const TileGemm& product = tile(i, j);
  const char* const a =
      decode_tiles ? row_tile(args, i, thread)
      : pack_a     ? scratch + (rows.begin(i) - rows.begin(i0)) * a_row_bytes()
                   : static_cast<const char*>(args.a) + rows.begin(i) * spec.a_stride() * elem();
  const char* const b = scratch + a_bytes + (j - j0) * b_tile_bytes();
  if (is_whole(args, product)) {
    float* const c = static_cast<float*>(args.c) + rows.begin(i) * spec.c_stride();
    return product.run(thread, {a, b, c, mine + acc_bytes});
  }
  product.run(thread, {a, b, acc, mine + acc_bytes});
  finish(args, i, j, acc, product.shape().n);
}

void Gemm::launch(const GemmArgs& args, ThreadPool& pool) const {
  const State& s = *state_;
  CHECK(pool.n_threads() <= s.n_threads);
  if (s.spec.m == 0 || s.spec.n == 0) return;
  if (s.spec.k == 0) {
    for_tiles(pool, s.rows.count() * s.cols.count(), [&](int64_t tile, int thread) {
      float* const acc = reinterpret_cast<float*>(s.own(args, thread));
      std::fill(acc, acc + s.rows.tile * s.cols.tile, 0.0f);
      s.finish(args, tile / s.cols.count(), tile % s.cols.count(), acc, s.cols.tile);
    });
    return;
  }
  if (s.few_rows != nullptr) {
    return s.few_rows->launch(args, pool, [&](int64_t tile, const float* sums) {
      s.finish(args, 0, tile, sums, s.cols.tile);
    });
  }
  for (int thread = 0; s.decode_tiles && thread < s.n_threads; ++thread)
    *s.tile_number(args, thread) = -1;
  for (int64_t j0 = 0; j0 < s.cols.count(); j0 += s.slice_cols) {
    const int64_t j1 = std::min(s.cols.count(), j0 + s.slice_cols);
    for (int64_t i0 = 0; i0 < s.rows.count(); i0 += s.slice_rows) {
      const int64_t i1 = std::min(s.rows.count(), i0 + s.slice_rows);
      s.pack(args, {i1, j1}, {i0, j0}, pool);
      const int64_t width = j1 - j0;
      for_tiles(pool, (i1 - i0) * width, [&](int64_t tile, int thread) {
        s.multiply(args, {i0 + tile / width, j0 + tile % width, i0, j0}, thread);
      });
    }
  }
}

}  // namespace octet::cpu
