// The quantizing kernels under the thread sanitizer: the same bits for any number of threads.
#include <gtest/gtest.h>

#include "backends/cpu/elementwise/move.h"
#include "backends/cpu/quantize/quantize.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

constexpr RowShape kShape{150, 72};
constexpr int64_t kElems = kShape.rows * kShape.cols;
constexpr int64_t kGroup = 16, kScales = kShape.rows * 5, kPadded = 160;

std::vector<float> scratch_for(ThreadPool& pool) {
  return std::vector<float>(
      static_cast<size_t>(quantize_scratch(kShape, kGroup, pool.n_threads())));
}

// Codes of a random matrix in groups.
struct Codes {
  explicit Codes(uint32_t seed) : codes(kElems), scales(kScales) {
    ThreadPool one(1);
    Buffer x(Dtype::bf16, kElems);
    x.randomize(seed);
    auto scratch = scratch_for(one);
    quantize_groups(x.in(), {Dtype::e4m3, 448, kGroup, codes.data(), scales.data()}, kShape,
                    scratch.data(), one);
  }
  QuantizedMatrix stored() const {
    return {{codes.data(), Dtype::e4m3}, {scales.data(), Dtype::bf16}, kGroup};
  }
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
};

// Runs fn twice with each number of threads; all must return the same.
template <typename Fn>
void expect_same(Fn&& fn) {
  ThreadPool one(1);
  const auto want = fn(one);
  for (const int n : {1, 3, 8}) {
    ThreadPool pool(n);
    for (int round = 0; round < 2; ++round) EXPECT_EQ(fn(pool), want) << n << " threads";
  }
}

TEST(quantize, both_layouts_do_not_race) {
  Buffer x(Dtype::bf16, kElems);
  x.randomize(1);
  expect_same([&](ThreadPool& pool) {
    std::vector<uint8_t> rows(kElems), transposed(kShape.cols * kPadded);
    auto scratch = scratch_for(pool);
    quantize(x.in(), {Dtype::e5m2, 0.01f, 0, rows.data(), transposed.data(), kPadded, 0}, kShape,
             scratch.data(), pool);
    rows.insert(rows.end(), transposed.begin(), transposed.end());
    return rows;
  });
}

TEST(quantize, sums_and_groups_do_not_race) {
  expect_same([&](ThreadPool& pool) {
    Buffer a(Dtype::bf16, kElems), b(Dtype::bf16, kElems);
    a.randomize(1);
    b.randomize(2);
    std::vector<uint8_t> codes(kElems);
    std::vector<uint16_t> scales(kScales);
    auto scratch = scratch_for(pool);
    add_quantize({a.in(), b.in(), a.out(), {Dtype::e4m3, 448, kGroup, codes.data(), scales.data()}},
                 kShape, scratch.data(), pool);
    return std::pair(codes, scales);
  });
}

TEST(quantize, own_scales_do_not_race) {
  const Codes x(1), up(2);
  Buffer weight(Dtype::bf16, kShape.cols);
  weight.randomize(3);
  expect_same([&](ThreadPool& pool) {
    std::vector<uint8_t> norm(kElems), gated(kShape.cols * kPadded);
    std::vector<float> rstd(static_cast<size_t>(kShape.rows)), scale(2);
    std::vector<uint8_t> flags(2);
    auto scratch = scratch_for(pool);
    norm_quantize({.x = x.stored(),
                   .weight = weight.in(),
                   .rstd = rstd.data(),
                   .own = {448, &scale[0], &flags[0]},
                   .out = {Dtype::e4m3, 1, 0, norm.data(), nullptr, 0, 0}},
                  kShape, scratch.data(), pool);
    activation_quantize({.x = x.stored(),
                         .up = up.stored(),
                         .own = {448, &scale[1], &flags[1]},
                         .out = {Dtype::e4m3, 1, 0, nullptr, gated.data(), kPadded, 0}},
                        kShape, scratch.data(), pool);
    return std::tuple(norm, gated, rstd, scale, flags);
  });
}

TEST(quantize, stored_operands_do_not_race) {
  const Codes x(1), up(2);
  Buffer dy(Dtype::bf16, kElems), rstd(Dtype::f32, kShape.rows);
  dy.randomize(3);
  for (int64_t r = 0; r < kShape.rows; ++r) rstd.set(r, 1.5f);
  expect_same([&](ThreadPool& pool) {
    std::vector<float> dgate(kElems), dup(kElems), dx(kElems), dw(kShape.cols);
    auto scratch = scratch_for(pool);
    activate_codes_backward(
        {x.stored(), up.stored()},
        {.dy = dy.in(), .dx = {dgate.data(), Dtype::f32}, .dup = {dup.data(), Dtype::f32}}, kShape,
        scratch.data(), pool);
    const int64_t rows_at = round_up(norm_backward_scratch(kShape, 1), 16);
    std::vector<float> sums(
        static_cast<size_t>(rows_at + norm_groups_scratch(kShape, pool.n_threads())));
    norm_backward({.x = x.stored().x,
                   .weight = {},
                   .dy = dy.in(),
                   .residual = {},
                   .rstd = rstd.f32(),
                   .dx = {dx.data(), Dtype::f32},
                   .dw = {dw.data(), Dtype::f32},
                   .scratch = sums.data(),
                   .groups = {x.stored().scales, kGroup, sums.data() + rows_at}},
                  kShape, pool);
    return std::tuple(dgate, dup, dx, dw);
  });
}

TEST(quantize, moves_do_not_race) {
  std::vector<uint16_t> from(kElems);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i * 40503u);
  expect_same([&](ThreadPool& pool) {
    std::vector<uint16_t> to(kElems);
    copy_strided({0, 0, {kShape.cols, kShape.rows}, {1, kShape.cols}, {kShape.rows, 1}},
                 from.data(), to.data(), 2, pool);
    return to;
  });
}

}  // namespace
}  // namespace octet::cpu
