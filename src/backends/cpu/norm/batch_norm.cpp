#include "backends/cpu/norm/batch_norm.h"

#include <cmath>
#include <limits>

#include "backends/cpu/elementwise/quantized_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/norm/batch_norm.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"

#ifndef OCTET_CPU_BATCH_NORM_ARGS
#define OCTET_CPU_BATCH_NORM_ARGS
namespace octet::cpu {
namespace {

// Rows [begin, end); two sums of each column, or numbers of it.
struct NormBlock {
  int64_t begin, end, cols;
  float *first, *second;
};

// y = (x - mean) factor + addend, and dx = (x - mean) slope + dy factor + addend; of each column.
struct ColumnNumbers {
  In mean;
  const float *factor, *addend, *slope;
};

}  // namespace
}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

// Sums of so many rows are added up by themselves: the error grows with the terms of one sum.
constexpr int64_t kRunRows = 32;

// first: the mean of x, second: the sum of squares about it; summed about the block's first row.
void BlockMoments(In x, const NormBlock& b) {
  for_lanes(0, b.cols, [&](int64_t c, auto io) HWY_ATTR {
    const VF shift = load(io, x, b.begin * b.cols + c);
    VF sum = zero(), squares = zero();
    for (int64_t first = b.begin + 1; first < b.end; first += kRunRows) {
      VF of_run = zero(), squares_of_run = zero();
      for (int64_t r = first; r < std::min(b.end, first + kRunRows); ++r) {
        const VF d = hn::Sub(load(io, x, r * b.cols + c), shift);
        of_run = hn::Add(of_run, d);
        squares_of_run = hn::MulAdd(d, d, squares_of_run);
      }
      sum = hn::Add(sum, of_run);
      squares = hn::Add(squares, squares_of_run);
    }
    const VF mean = hn::Mul(sum, set(1.0f / static_cast<float>(b.end - b.begin)));
    io.store(hn::Add(shift, mean), b.first + c);
    io.store(hn::NegMulAdd(sum, mean, squares), b.second + c);
  });
}

void BlockApply(In x, Out y, const ColumnNumbers& of, const NormBlock& b) {
  for_lanes(0, b.cols, [&](int64_t c, auto io) HWY_ATTR {
    const VF mean = load(io, of.mean, c);
    const VF factor = io.load(of.factor + c), addend = io.load(of.addend + c);
    for (int64_t at = b.begin * b.cols + c; at < b.end * b.cols; at += b.cols)
      store(io, hn::MulAdd(hn::Sub(load(io, x, at), mean), factor, addend), y, at);
  });
}

// first: the sum of dy, second: of dy (x - mean).
void BlockGradientSums(const BatchNormBackward& a, const NormBlock& b) {
  for_lanes(0, b.cols, [&](int64_t c, auto io) HWY_ATTR {
    const VF mean = load(io, a.own_mean, c);
    VF sum = zero(), along = zero();
    for (int64_t at = b.begin * b.cols + c; at < b.end * b.cols; at += b.cols) {
      const VF d = load(io, a.dy, at);
      sum = hn::Add(sum, d);
      along = hn::MulAdd(d, hn::Sub(load(io, a.x, at), mean), along);
    }
    io.store(sum, b.first + c);
    io.store(along, b.second + c);
  });
}

void BlockGradient(const BatchNormBackward& a, const ColumnNumbers& of, const NormBlock& b) {
  for_lanes(0, b.cols, [&](int64_t c, auto io) HWY_ATTR {
    const VF mean = load(io, of.mean, c), slope = io.load(of.slope + c);
    const VF factor = io.load(of.factor + c), addend = io.load(of.addend + c);
    for (int64_t at = b.begin * b.cols + c; at < b.end * b.cols; at += b.cols) {
      const VF bent = hn::MulAdd(hn::Sub(load(io, a.x, at), mean), slope, addend);
      store(io, hn::MulAdd(load(io, a.dy, at), factor, bent), a.dx, at);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(BlockMoments);
HWY_EXPORT(BlockApply);
HWY_EXPORT(BlockGradientSums);
HWY_EXPORT(BlockGradient);

namespace {

float number_at(In x, int64_t i) {
  float value = 0;
  convert_span(offset(x, i), 1, {&value, Dtype::f32});
  return value;
}
void set_number(Out x, int64_t i, double value) {
  if (!x) return;
  const auto rounded = static_cast<float>(value);
  convert_span({&rounded, Dtype::f32}, 1, offset(x, i));
}

// The scratch: two sums of each block and column, then five numbers of each column.
struct Scratch {
  Scratch(float* scratch, RowShape shape)
      : n_blocks(ceil_div(shape.rows, kStatisticRows)),
        shape(shape),
        first(scratch),
        second(first + n_blocks * shape.cols),
        factor(second + n_blocks * shape.cols),
        addend(factor + shape.cols),
        slope(addend + shape.cols),
        mean(slope + shape.cols),
        variance(mean + shape.cols) {}

  NormBlock block(int64_t begin, int64_t end) const {
    const int64_t at = begin / kStatisticRows * shape.cols;
    return {begin, end, shape.cols, first + at, second + at};
  }
  int64_t rows_of(int64_t block) const {
    return std::min(kStatisticRows, shape.rows - block * kStatisticRows);
  }

  int64_t n_blocks;
  RowShape shape;
  float *first, *second, *factor, *addend, *slope, *mean, *variance;
};

template <typename Fn>
void for_norm_blocks(const Scratch& scratch, ThreadPool& pool, Fn&& fn) {
  for_blocks(pool, scratch.shape.rows, kStatisticRows,
             [&](int64_t begin, int64_t end, int) { fn(scratch.block(begin, end)); });
}

struct Moments {
  double mean = 0, variance = 0;
};
// Means and sums of squares about them, joined one block after the other.
Moments joined_moments(const Scratch& s, int64_t c) {
  double mean = 0, squares = 0, n = 0;
  for (int64_t k = 0; k < s.n_blocks; ++k) {
    const auto n_here = static_cast<double>(s.rows_of(k));
    const double squares_here = s.second[k * s.shape.cols + c];
    const double apart = s.first[k * s.shape.cols + c] - mean;
    mean += apart * n_here / (n + n_here);
    squares += (squares_here < 0 ? 0 : squares_here) + apart * apart * n * n_here / (n + n_here);
    n += n_here;
  }
  return {mean, squares / n};
}

// In f32, as the steps of the definition.
float next_statistic(float old, float own, double momentum, double share) {
  const float next =
      old * static_cast<float>(1 - momentum) + own * static_cast<float>(momentum * share);
  return std::abs(next) < std::numeric_limits<float>::max() ? next : old;
}

void take_own_statistics(const BatchNorm& args, const Scratch& s, int64_t c) {
  const auto [mean, variance] = joined_moments(s, c);
  s.mean[c] = static_cast<float>(mean);
  s.variance[c] = static_cast<float>(variance);
  if (args.own_mean != nullptr) args.own_mean[c] = s.mean[c];
  if (args.own_variance != nullptr) args.own_variance[c] = s.variance[c];
  const auto n = static_cast<double>(s.shape.rows);
  set_number(args.next_mean, c,
             next_statistic(number_at(args.mean, c), s.mean[c], args.momentum, 1));
  set_number(
      args.next_variance, c,
      next_statistic(number_at(args.variance, c), s.variance[c], args.momentum, n / (n - 1)));
}

float rstd_of(In variance, int64_t c, float eps) {
  return 1.0f / std::sqrt(number_at(variance, c) + eps);
}

}  // namespace

void batch_norm(const BatchNorm& args, RowShape shape, ThreadPool& pool) {
  const Scratch s(args.scratch, shape);
  if (args.own) {
    const auto moments = HWY_DYNAMIC_DISPATCH(BlockMoments);
    for_norm_blocks(s, pool, [&](const NormBlock& block) { moments(args.x, block); });
  }
  const In mean = args.own ? In{s.mean, Dtype::f32} : args.mean;
  const In variance = args.own ? In{s.variance, Dtype::f32} : args.variance;
  for (int64_t c = 0; c < shape.cols; ++c) {
    if (args.own) take_own_statistics(args, s, c);
    s.factor[c] = rstd_of(variance, c, args.eps) * number_at(args.weight, c);
    s.addend[c] = number_at(args.bias, c);
  }
  const auto apply = HWY_DYNAMIC_DISPATCH(BlockApply);
  const ColumnNumbers numbers{
      .mean = mean, .factor = s.factor, .addend = s.addend, .slope = nullptr};
  for_norm_blocks(s, pool, [&](const NormBlock& block) { apply(args.x, args.y, numbers, block); });
}

void batch_norm_backward(const BatchNormBackward& args, RowShape shape, ThreadPool& pool) {
  const Scratch s(args.scratch, shape);
  const auto sums = HWY_DYNAMIC_DISPATCH(BlockGradientSums);
  for_norm_blocks(s, pool, [&](const NormBlock& block) { sums(args, block); });
  const auto n = static_cast<double>(shape.rows);
  for (int64_t c = 0; c < shape.cols; ++c) {
    double sum = 0, along = 0;
    for (int64_t k = 0; k < s.n_blocks; ++k) {
      sum += s.first[k * shape.cols + c];
      along += s.second[k * shape.cols + c];
    }
    const double rstd = rstd_of(args.own_variance, c, args.eps);
    const double factor = rstd * number_at(args.weight, c);
    set_number(args.db, c, sum);
    set_number(args.dw, c, along * rstd);
    s.factor[c] = static_cast<float>(factor);
    s.addend[c] = static_cast<float>(-factor * sum / n);
    s.slope[c] = static_cast<float>(-factor * rstd * rstd * along / n);
  }
  if (!args.dx) return;
  const auto gradient = HWY_DYNAMIC_DISPATCH(BlockGradient);
  const ColumnNumbers numbers{args.own_mean, s.factor, s.addend, s.slope};
  for_norm_blocks(s, pool, [&](const NormBlock& block) { gradient(args, numbers, block); });
}

}  // namespace octet::cpu
#endif
