#include "backends/cpu/norm/norm.h"

#include "backends/cpu/elementwise/quantized_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/norm/norm.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"
#include "backends/cpu/elementwise/amax_sink.h"
#include "backends/cpu/elementwise/normalize-inl.h"

#ifndef OCTET_CPU_NORM_ARGS
#define OCTET_CPU_NORM_ARGS
namespace octet::cpu {
namespace {

struct BackwardRows {
  NormBackward args;
  int64_t cols;
  float* dw;  // this block's sums, [cols], or null
  float* db;
};

}  // namespace
}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

// Two sums at once in four lanes sets each: short dependency chains, fixed order.
HWY_INLINE float squares_about(In x, float mean, int64_t n) {
  VF s0 = zero(), s1 = zero();
  const VF m = set(mean);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const VF a = hn::Sub(load(Full(), x, i), m), b = hn::Sub(load(Full(), x, i + lanes), m);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  for_lanes(i, n, [&](int64_t j, auto io) HWY_ATTR {
    const VF a = keep_lanes(io, hn::Sub(load(io, x, j), m), 0.0f);
    s0 = hn::MulAdd(a, a, s0);
  });
  return sum_of(hn::Add(s0, s1));
}

HWY_INLINE float mean_of(In x, int64_t n) {
  VF s = zero();
  for_lanes(0, n, [&](int64_t i, auto io) HWY_ATTR { s = hn::Add(s, load(io, x, i)); });
  return sum_of(s) / static_cast<float>(n);
}

RowStatistics StatisticsOfRow(NormKind kind, In x, int64_t cols, float eps) {
  const float mean = kind == NormKind::layer ? mean_of(x, cols) : 0.0f;
  return {mean, rstd_of(squares_about(x, mean, cols), static_cast<float>(cols), eps)};
}

void NormRows(const Norm& a, int64_t begin, int64_t end, int64_t cols) {
  for (int64_t r = begin; r < end; ++r) {
    const In x = offset(a.x, r * cols);
    const Out y = offset(a.y, r * cols);
    const auto [mean, rstd] =
        a.known_rstd == nullptr
            ? StatisticsOfRow(a.kind, x, cols, a.eps)
            : RowStatistics{a.known_mean == nullptr ? 0.0f : a.known_mean[r], a.known_rstd[r]};
    if (a.mean != nullptr) a.mean[r] = mean;
    if (a.rstd != nullptr) a.rstd[r] = rstd;
    const NormLanes row = norm_lanes(mean, rstd);
    for_lanes(0, cols, [&](int64_t i, auto io) HWY_ATTR {
      store(io, row.result(load(io, x, i), a.weight, a.bias, i, io), y, i);
    });
  }
}

// The sums over rows first: dx may overwrite dy.
HWY_INLINE void add_parameter_sums(const BackwardRows& b, In x, In dy, RowStatistics stats) {
  const NormLanes row = norm_lanes(stats.mean, stats.rstd);
  for_lanes(0, b.cols, [&](int64_t i, auto io) HWY_ATTR {
    const VF g = load(io, dy, i);
    if (b.dw != nullptr) {
      const VF h = row.normalized(load(io, x, i));
      io.store(hn::MulAdd(g, h, io.load(b.dw + i)), b.dw + i);
    }
    if (b.db != nullptr) io.store(hn::Add(g, io.load(b.db + i)), b.db + i);
  });
}

void BackwardBlock(const BackwardRows& b, int64_t begin, int64_t end) {
  const NormBackward& a = b.args;
  const bool centred = a.kind == NormKind::layer;
  const int64_t cols = b.cols;
  for (int64_t r = begin; r < end; ++r) {
    const In x = offset(a.x, r * cols), dy = offset(a.dy, r * cols);
    const In residual = offset(a.residual, r * cols);
    const Out dx = offset(a.dx, r * cols);
    const float mean = centred ? a.mean[r] : 0.0f;
    if (b.dw != nullptr || b.db != nullptr) add_parameter_sums(b, x, dy, {mean, a.rstd[r]});
    const NormLanes row = norm_lanes(mean, a.rstd[r]);
    VF sum_g = zero(), sum_gh = zero();
    const auto gradient = [&](int64_t i, auto io) HWY_ATTR {
      const VF g = load(io, dy, i);
      return a.weight ? hn::Mul(g, load(io, a.weight, i)) : g;
    };
    for_lanes(0, cols, [&](int64_t i, auto io) HWY_ATTR {
      const VF g = gradient(i, io);
      const VF h = row.normalized(load(io, x, i));
      sum_g = hn::Add(sum_g, g);
      sum_gh = hn::Add(sum_gh, keep_lanes(io, hn::Mul(g, h), 0.0f));
    });
    const VF mean_g = set(centred ? sum_of(sum_g) / static_cast<float>(cols) : 0.0f);
    const VF mean_gh = set(sum_of(sum_gh) / static_cast<float>(cols));
    for_lanes(0, cols, [&](int64_t i, auto io) HWY_ATTR {
      const VF h = row.normalized(load(io, x, i));
      const VF inner = hn::NegMulAdd(h, mean_gh, hn::Sub(gradient(i, io), mean_g));
      VF v = hn::Mul(inner, row.rstd);
      if (residual) v = hn::Add(v, load(io, residual, i));
      store(io, v, dx, i);
    });
  }
}

// y[c] = sum of n_blocks partial sums in order, for columns [begin, end).
void AddBlocks(const float* partial, Out y, RowShape blocks, int64_t begin, int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    VF s = zero();
    for (int64_t k = 0; k < blocks.rows; ++k)
      s = hn::Add(s, io.load(partial + k * blocks.cols + i));
    store(io, s, y, i);
  });
}

void ColumnBlock(In x, float* partial, int64_t rows, int64_t cols) {
  for_lanes(0, cols, [&](int64_t i, auto io) HWY_ATTR {
    VF s = zero();
    for (int64_t r = 0; r < rows; ++r) s = hn::Add(s, load(io, x, r * cols + i));
    io.store(s, partial + i);
  });
}

void BiasRow(In x, In bias, Out y, int64_t cols) {
  for_lanes(0, cols, [&](int64_t i, auto io) HWY_ATTR {
    store(io, hn::Add(load(io, x, i), load(io, bias, i)), y, i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(StatisticsOfRow);
HWY_EXPORT(NormRows);
HWY_EXPORT(BackwardBlock);
HWY_EXPORT(AddBlocks);
HWY_EXPORT(ColumnBlock);
HWY_EXPORT(BiasRow);

namespace {

constexpr int64_t kForwardRows = 16;
constexpr int64_t kSumCols = 512;

In decoded_row(In x, const NormGroups& groups, const RowSpan& row, int thread) {
  return read_span({x, groups.scales, groups.size}, row,
                   groups.rows + thread * round_up(row.cols, 16));
}

template <typename T>
T* at_row(T* statistics, int64_t row) {
  return statistics == nullptr ? nullptr : statistics + row;
}

void add_blocks(const float* partial, Out y, RowShape blocks, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddBlocks);
  for_blocks(pool, blocks.cols, kSumCols,
             [&](int64_t begin, int64_t end, int) { kernel(partial, y, blocks, begin, end); });
}

// A block of rows of the backward, each decoded by itself.
void backward_decoded(const BackwardRows& block, RowSpan rows, int thread) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardBlock);
  const NormBackward& args = block.args;
  for (int64_t r = rows.row; r < rows.row + rows.n; ++r) {
    const int64_t at = r * rows.cols;
    BackwardRows row = block;
    row.args.x = decoded_row(args.x, args.groups, {r, 0, rows.cols, rows.cols}, thread);
    row.args.dy = offset(args.dy, at);
    row.args.residual = offset(args.residual, at);
    row.args.dx = offset(args.dx, at);
    row.args.mean = at_row(args.mean, r);
    row.args.rstd = args.rstd + r;
    kernel(row, 0, 1);
  }
}

}  // namespace

void norm(const Norm& args, RowShape shape, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(NormRows);
  const int64_t cols = shape.cols;
  for_blocks(pool, shape.rows, kForwardRows, [&](int64_t begin, int64_t end, int thread) {
    if (args.groups.size == 0) return kernel(args, begin, end, cols);
    for (int64_t r = begin; r < end; ++r) {
      Norm row = args;
      row.x = decoded_row(args.x, args.groups, {r, 0, cols, cols}, thread);
      row.y = offset(args.y, r * cols);
      row.mean = at_row(args.mean, r);
      row.rstd = at_row(args.rstd, r);
      row.known_mean = at_row(args.known_mean, r);
      row.known_rstd = at_row(args.known_rstd, r);
      kernel(row, 0, 1, cols);
    }
  });
}

RowStatistics row_statistics(NormKind kind, In x, int64_t cols, float eps) {
  return HWY_DYNAMIC_DISPATCH(StatisticsOfRow)(kind, x, cols, eps);
}

void norm_backward(const NormBackward& args, RowShape shape, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(BackwardBlock);
  const RowShape blocks{ceil_div(shape.rows, kBlockRows), shape.cols};
  float* const dw = args.dw ? args.scratch : nullptr;
  float* const db = args.db ? args.scratch + (args.dw ? blocks.rows * blocks.cols : 0) : nullptr;
  for_blocks(pool, shape.rows, kBlockRows, [&](int64_t begin, int64_t end, int thread) {
    const int64_t at = begin / kBlockRows * shape.cols;
    const BackwardRows block{args, shape.cols, dw ? dw + at : nullptr, db ? db + at : nullptr};
    for (float* const sums : {block.dw, block.db}) {
      if (sums != nullptr) std::fill(sums, sums + shape.cols, 0.0f);
    }
    if (args.groups.size == 0) {
      kernel(block, begin, end);
    } else {
      backward_decoded(block, {begin, 0, end - begin, shape.cols}, thread);
    }
    if (args.amax != nullptr)
      args.amax->add(offset(args.dx, begin * shape.cols), (end - begin) * shape.cols);
  });
  // Without rows there is no scratch, and sums are zeros.
  if (args.dw) add_blocks(dw, args.dw, blocks, pool);
  if (args.db) add_blocks(db, args.db, blocks, pool);
}

void add_bias(In x, In bias, Out y, RowShape shape, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(BiasRow);
  for_blocks(pool, shape.rows, kForwardRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernel(offset(x, r * shape.cols), bias, offset(y, r * shape.cols), shape.cols);
    }
  });
}

void column_sum(In x, Out y, float* scratch, RowShape shape, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ColumnBlock);
  for_blocks(pool, shape.rows, kBlockRows, [&](int64_t begin, int64_t end, int) {
    kernel(offset(x, begin * shape.cols), scratch + begin / kBlockRows * shape.cols, end - begin,
           shape.cols);
  });
  add_blocks(scratch, y, {ceil_div(shape.rows, kBlockRows), shape.cols}, pool);
}

}  // namespace octet::cpu
#endif
