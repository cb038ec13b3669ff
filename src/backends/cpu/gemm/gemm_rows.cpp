#include "backends/cpu/gemm/gemm_rows.h"

#include <cstring>

#include "backends/cpu/codec/codec.h"
#include "backends/cpu/gemm/row_lanes.h"
#include "backends/cpu/gemm/row_pairs.h"
#include "backends/cpu/gemm/tile_gemm.h"
#include "base/error.h"
#include "formats/table.h"

namespace octet::cpu {
namespace {

constexpr int64_t kDepth = 128;     // rows of op(B) that are packed at a time
constexpr int64_t kMaxDotRows = 8;  // of a chain of steps; with more, rows are lanes
// From so many rows of BF16 on the library's units are faster, though they hold zeros.
constexpr int64_t kFewUnitRows = 16;
constexpr int64_t kPanelElems = kDepth * kRowColumns;
// dot_rows reads a strip's rows in memory side by side. Each goes on in the thread's next strip for
// at least so many bytes: the machine fetches a page ahead of a reader, but not many rows of one.
constexpr int64_t kStreamBytes = 6144;
constexpr int64_t kFetchAhead = 512;

int64_t aligned(int64_t bytes) {
  return round_up(bytes, 64);
}

// dot_rows reads whole groups; on some machines the library cuts its sums elsewhere.
bool ends_in_groups(const DotOrder& order, int64_t k) {
  while (k > 0) {
    const int64_t n_elems = order.runs.next(k);
    if (n_elems % kDotDepth != 0) return false;
    k -= n_elems;
  }
  return true;
}

int64_t columns_apart(const GemmSpec& spec, int n_threads) {
  const int64_t wanted = ceil_div(kStreamBytes, bytes_of(spec.b, spec.b_stride()));
  constexpr int64_t kTilesOfThread = 2;  // so that every thread has work
  return std::clamp<int64_t>(spec.n / (kRowColumns * kTilesOfThread * n_threads), 1, wanted);
}

}  // namespace

bool GemmRows::applies(const GemmSpec& spec, const DotOrder& order) {
  if (!order.runs.is_known() || (is_gemm_operand(spec.a) && spec.trans_a == Transpose::yes))
    return false;
  return order.chain == DotChain::steps || spec.trans_b == Transpose::yes;
}

GemmRows::Kernel GemmRows::kernel_of(const GemmSpec& spec, const DotOrder& order,
                                     int64_t k_padded) {
  if (spec.trans_b == Transpose::no) return Kernel::packed;
  if (order.chain == DotChain::steps) {
    if (spec.b != Dtype::f32 && !ends_in_groups(order, k_padded)) return Kernel::packed;
    const bool is_few = spec.m <= kMaxDotRows && ends_in_groups(order, k_padded);
    return is_few ? Kernel::dots : Kernel::lanes;
  }
  if (order.chain == DotChain::tiles || !has_dot_lanes()) return Kernel::dots;
  return spec.m <= kMaxPairRows ? Kernel::pairs : Kernel::lanes;
}

int64_t GemmRows::most_rows(Dtype compute, DotChain chain) {
  const bool in_units = compute == Dtype::bf16 && !(chain == DotChain::dots && has_dot_lanes());
  return in_units ? kFewUnitRows : kTileRows;
}

GemmRows::GemmRows(const GemmSpec& spec, const DotOrder& order, int n_threads)
    : spec_(spec),
      order_(order),
      n_threads_(n_threads),
      k_padded_(round_up(spec.k, kTileDepth)),
      kernel_(kernel_of(spec, order, k_padded_)),
      apart_(kernel_ == Kernel::packed ? 1 : columns_apart(spec, n_threads)) {}

int64_t GemmRows::strip_bytes() const {
  return aligned(spec_.m * kRowColumns * 4);
}

int64_t GemmRows::own_bytes() const {
  return kPanelElems * (4 + 2) + (2 + apart_) * strip_bytes();
}

int64_t GemmRows::row_bytes() const {
  return aligned(spec_.m * k_padded_ * 4);
}

int64_t GemmRows::lane_bytes() const {
  return kernel_ == Kernel::lanes ? round_up(spec_.m, kLaneRows) * k_padded_ * 4 : 0;
}

size_t GemmRows::scratch_bytes() const {
  return static_cast<size_t>(row_bytes() + lane_bytes() + n_threads_ * own_bytes());
}

GemmRows::Own GemmRows::own(const GemmArgs& args, int thread) const {
  char* at = static_cast<char*>(args.scratch) + row_bytes() + lane_bytes() + thread * own_bytes();
  Own own{};
  own.panel = reinterpret_cast<float*>(at);
  own.decoded = reinterpret_cast<uint16_t*>(at += kPanelElems * 4);
  own.run = reinterpret_cast<float*>(at += kPanelElems * 2);
  own.strip = reinterpret_cast<float*>(at += strip_bytes());
  own.tile = reinterpret_cast<float*>(at + strip_bytes());
  return own;
}

// The panel [depth, kRowColumns] in f32; what is not there is zero. Columns are neighbours.
void GemmRows::pack(const GemmArgs& args, const Strip& strip, const Depth& depth,
                    const Own& own) const {
  const bool transposed = spec_.trans_b == Transpose::yes;
  const int64_t k = std::clamp<int64_t>(spec_.k - depth.begin, 0, depth.end - depth.begin);
  const int64_t row = transposed ? strip.begin : depth.begin;
  const int64_t col = transposed ? depth.begin : strip.begin;
  MatrixIn b{offset(In{args.b, spec_.b}, row * spec_.b_stride() + col), spec_.b_stride(),
             spec_.trans_b};
  if (is_gemm_operand(spec_.b)) {
    const int64_t cols = transposed ? k : strip.count;
    for (int64_t r = 0; r < (transposed ? strip.count : k); ++r) {
      const auto* const codes = static_cast<const uint8_t*>(b.data.data) + r * spec_.b_stride();
      simd_codec(spec_.b).decode_bf16(codes, static_cast<size_t>(cols), own.decoded + r * cols);
    }
    b = {{own.decoded, Dtype::bf16}, cols, spec_.trans_b};
  }
  pack_panel(b, {kRowColumns, 1, depth.end - depth.begin, Dtype::f32}, {0, k, 0, strip.count}, true,
             own.panel);
}

// The panel [kRowColumns, kDepth] in f32 or bf16 of a transposed B; what is not there is zero.
void GemmRows::copy(const GemmArgs& args, const Strip& strip, const Depth& depth,
                    const Own& own) const {
  const auto k =
      static_cast<size_t>(std::clamp<int64_t>(spec_.k - depth.begin, 0, depth.end - depth.begin));
  const int64_t bytes = bytes_of(panel_dtype(), 1);
  auto* const panel = reinterpret_cast<char*>(own.panel);
  std::fill(panel, panel + kPanelElems * bytes, 0);
  for (int64_t i = 0; i < strip.count; ++i) {
    char* const to = panel + i * kDepth * bytes;
    const int64_t n = strip.begin + i * strip.apart;
    const In from = offset(In{args.b, spec_.b}, n * spec_.b_stride() + depth.begin);
    if (is_gemm_operand(spec_.b)) {
      simd_codec(spec_.b).decode_bf16(static_cast<const uint8_t*>(from.data), k,
                                      reinterpret_cast<uint16_t*>(to));
    } else {
      std::memcpy(to, from.data, k * static_cast<size_t>(bytes));
    }
  }
}

// op(A) as dense rows of k_padded, which end with zeros.
void GemmRows::pack_a(const GemmArgs& args) const {
  const Out rows{args.scratch, row_dtype()};
  if (!is_gemm_operand(spec_.a)) {
    return pack_rows({{args.a, spec_.a}, spec_.a_stride(), spec_.trans_a},
                     {0, spec_.m, spec_.k, k_padded_}, rows);
  }
  const auto k = static_cast<size_t>(spec_.k);
  const Codec codec = simd_codec(spec_.a);
  for (int64_t r = 0; r < spec_.m; ++r) {
    const auto* const codes = static_cast<const uint8_t*>(args.a) + r * spec_.a_stride();
    void* const row = offset(rows, r * k_padded_).data;
    if (rows.dtype == Dtype::bf16) {
      codec.decode_bf16(codes, k, static_cast<uint16_t*>(row));
    } else {
      codec.decode_f32(codes, k, 1.0f, static_cast<float*>(row));
    }
    const auto filled = static_cast<size_t>(bytes_of(rows.dtype, spec_.k));
    std::memset(static_cast<char*>(row) + filled, 0,
                static_cast<size_t>(bytes_of(rows.dtype, k_padded_)) - filled);
  }
}

// op(A) with its rows side by side, as multiply_lanes reads it.
void GemmRows::pack_lanes(const GemmArgs& args) const {
  const bool in_pairs = order_.chain == DotChain::dots;
  MatrixIn a{{args.a, spec_.a}, spec_.a_stride(), spec_.trans_a};
  if (is_gemm_operand(spec_.a)) {
    auto* const decoded = static_cast<uint16_t*>(args.scratch);
    for (int64_t r = 0; r < spec_.m; ++r) {
      const auto* const codes = static_cast<const uint8_t*>(args.a) + r * spec_.a_stride();
      simd_codec(spec_.a).decode_bf16(codes, static_cast<size_t>(spec_.k), decoded + r * spec_.k);
    }
    a = {{decoded, Dtype::bf16}, spec_.k, Transpose::no};
  }
  // The panel of the transposed matrix.
  a.transpose = a.transpose == Transpose::yes ? Transpose::no : Transpose::yes;
  const PanelLayout lanes{round_up(spec_.m, kLaneRows), in_pairs ? 2 : 1, k_padded_,
                          in_pairs ? Dtype::bf16 : Dtype::f32};
  pack_panel(a, lanes, {0, spec_.k, 0, spec_.m}, true,
             static_cast<char*>(args.scratch) + row_bytes());
}

// The sums of a run into own.run.
void GemmRows::run_packed(const GemmArgs& args, const Strip& strip, const Depth& depth,
                          const Own& own) const {
  RowProduct product{.a_stride = k_padded_,
                     .b = own.panel,
                     .b_stride = kRowColumns,
                     .c = own.run,
                     .c_stride = kRowColumns,
                     .m = spec_.m,
                     .n = kRowColumns};
  for (int64_t k = depth.begin; k < depth.end; k += product.k) {
    product.k = std::min(kDepth, depth.end - k);
    product.order = {product.k};
    product.sum = k == depth.begin ? RowSum::overwrite : RowSum::carry;
    product.a = static_cast<const float*>(args.scratch) + k;
    pack(args, strip, {k, k + product.k}, own);
    multiply_rows(product);
  }
}

// The product of a from its element k on, which is not of `dot` yet.
void GemmRows::dot(const GemmArgs& args, int64_t k, RowDot dot) const {
  if (kernel_ == Kernel::dots) {
    dot.a = static_cast<const float*>(args.scratch) + k;
    return dot_rows(dot);
  }
  const Fetch fetch = dot.ahead != 0 ? Fetch::next_columns : Fetch::none;
  if (kernel_ == Kernel::pairs) {
    return multiply_pairs({.a = static_cast<const uint16_t*>(args.scratch) + k,
                           .a_stride = k_padded_,
                           .b = static_cast<const uint16_t*>(dot.b),
                           .b_stride = dot.b_stride,
                           .c = dot.c,
                           .m = dot.m,
                           .k = dot.k,
                           .sum = dot.sum,
                           .fetch = fetch});
  }
  const int64_t n_lanes = round_up(spec_.m, kLaneRows);
  const int64_t word = order_.chain == DotChain::dots ? k / 2 : k;
  multiply_lanes({.a = static_cast<const char*>(args.scratch) + row_bytes() + word * n_lanes * 4,
                  .a_stride = n_lanes,
                  .b = dot.b,
                  .b_stride = dot.b_stride,
                  .b_dtype = dot.b_dtype,
                  .c = dot.c,
                  .m = dot.m,
                  .k = dot.k,
                  .chain = dot.chain,
                  .sum = dot.sum,
                  .fetch = fetch});
}

// The same of a transposed B: what is whole in memory is read there.
void GemmRows::run(const GemmArgs& args, const Strip& strip, const Depth& depth,
                   const Own& own) const {
  RowDot part{.a_stride = k_padded_,
              .b_dtype = panel_dtype(),
              .c = own.run,
              .m = spec_.m,
              .chain = order_.chain};
  int64_t k = depth.begin;
  const bool is_whole = strip.count == kRowColumns && !is_gemm_operand(spec_.b);
  const int64_t k_whole = std::min(depth.end, spec_.k / kDotDepth * kDotDepth);
  if (is_whole && k < k_whole) {
    part.b = offset(In{args.b, spec_.b}, strip.begin * spec_.b_stride() + k).data;
    part.b_stride = strip.apart * spec_.b_stride();
    part.k = k_whole - k;
    part.ahead = kFetchAhead;
    dot(args, k, part);
    part.sum = RowSum::carry;
    k = k_whole;
  }
  part.b = own.panel;
  part.b_stride = kDepth;
  part.ahead = 0;
  for (; k < depth.end; k += part.k) {
    part.k = std::min(kDepth, depth.end - k);
    copy(args, strip, {k, k + part.k}, own);
    dot(args, k, part);
    part.sum = RowSum::carry;
  }
}

// The sums of a strip into own.strip.
void GemmRows::multiply(const GemmArgs& args, const Strip& strip, const Own& own) const {
  const int64_t n_elems = spec_.m * kRowColumns;
  for (int64_t begin = 0; begin < k_padded_;) {
    const Depth depth{begin, begin + order_.runs.next(k_padded_ - begin)};
    kernel_ == Kernel::packed ? run_packed(args, strip, depth, own) : run(args, strip, depth, own);
    if (begin == 0) {
      std::copy(own.run, own.run + n_elems, own.strip);
    } else {
      for (int64_t i = 0; i < n_elems; ++i) own.strip[i] += own.run[i];
    }
    begin = depth.end;
  }
}

void GemmRows::multiply_tile(const GemmArgs& args, int64_t index, const Own& own) const {
  const int64_t first = index * columns(), n = std::min(columns(), spec_.n - first);
  for (int64_t i = 0; i < apart_; ++i) {
    Strip strip{first + i, kRowColumns, apart_};
    if (n < columns() || kernel_ != Kernel::dots) {  // neighbours instead
      strip = {first + i * kRowColumns, std::min(kRowColumns, n - i * kRowColumns)};
      if (strip.count <= 0) return;
    }
    multiply(args, strip, own);
    for (int64_t r = 0; r < spec_.m; ++r) {
      float* const to = own.tile + r * columns() + strip.begin - first;
      for (int64_t j = 0; j < strip.count; ++j)
        to[j * strip.apart] = own.strip[r * kRowColumns + j];
    }
  }
}

void GemmRows::launch(const GemmArgs& args, ThreadPool& pool, const Finish& finish) const {
  CHECK(pool.n_threads() <= n_threads_);
  kernel_ == Kernel::lanes ? pack_lanes(args) : pack_a(args);
  for_tiles(pool, ceil_div(spec_.n, columns()), [&](int64_t index, int thread) {
    const Own mine = own(args, thread);
    multiply_tile(args, index, mine);
    finish(index, mine.tile);
  });
}

}  // namespace octet::cpu
