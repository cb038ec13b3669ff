#include "backends/cpu/elementwise/elementwise.h"

#include <limits>

#include "backends/cpu/adamw/adamw_groups.h"
#include "backends/cpu/common/isa.h"
#include "backends/cpu/elementwise/move.h"
#include "backends/cpu/elementwise/reduce.h"
#include "base/error.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

using Doubles = std::vector<double>;

TEST(cast, rounds_to_nearest_even_and_keeps_nan) {
  ThreadPool pool(2);
  std::vector<uint32_t> bits{0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000,
                             0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF,
                             0x00000001, 0x80008000, 0x00018000, 0x7FC00000};
  for (uint32_t i = 0; i < 40000; ++i) bits.push_back(i * 107374u + i);
  Buffer x(Dtype::f32, static_cast<int64_t>(bits.size()));
  std::memcpy(x.data(), bits.data(), bits.size() * 4);
  for_each_target([&](const std::string& target) {
    Buffer y(Dtype::bf16, x.size()), back(Dtype::f32, x.size());
    cast(x.in(), y.out(), x.size(), pool);
    cast(y.in(), back.out(), x.size(), pool);
    for (int64_t i = 0; i < x.size(); ++i) {
      uint16_t got;
      std::memcpy(&got, static_cast<const char*>(y.data()) + i * 2, 2);
      ASSERT_EQ(got, f32_to_bf16(__builtin_bit_cast(float, bits[i]))) << target << " " << bits[i];
      uint32_t wide;
      std::memcpy(&wide, static_cast<const char*>(back.data()) + i * 4, 4);
      ASSERT_EQ(wide, static_cast<uint32_t>(got) << 16);
    }
  });
}

TEST(scaled_sum, may_write_over_its_second_term) {
  ThreadPool pool(2);
  for (const int64_t n : {1, 3, 17, 31, 513}) {
    Buffer a(Dtype::bf16, n), b(Dtype::f32, n);
    a.randomize(1);
    b.randomize(2);
    Doubles want;
    for (int64_t i = 0; i < n; ++i) want.push_back(0.5 * a.at(i) - 3 * b.at(i));
    scaled_sum({a.in(), b.in(), b.out(), 0.5f, -3.0f}, n, pool);
    expect_close(b, want, 1e-7, "in place");
  }
}

TEST(reduce, sums_match_double_and_flaws_are_found) {
  for_each_target([&](const std::string& target) {
    for (const Dtype d : kStorage) {
      for (const int64_t n : {int64_t{1}, int64_t{31}, int64_t{513}, int64_t{50001}}) {
        Buffer x(d, n);
        x.randomize(1, 1e20);  // squares beyond f32
        double squares = 0, total = 0, top = 0;
        for (int64_t i = 0; i < n; ++i) {
          squares += x.at(i) * x.at(i);
          total += x.at(i);
          top = std::max(top, std::abs(x.at(i)));
        }
        ThreadPool pool(3), one(1);
        Doubles scratch(static_cast<size_t>(reduce_scratch(n)), NAN);
        const SumOfSquares got = sum_of_squares(x.in(), n, scratch.data(), pool);
        EXPECT_NEAR(got.value / squares, 1, 1e-12) << target;
        EXPECT_TRUE(got.finite);
        EXPECT_EQ(got.value, sum_of_squares(x.in(), n, scratch.data(), one).value);
        EXPECT_NEAR(sum(x.in(), n, scratch.data(), pool), total, 1e-9 * top * n);
        const Amax amax_got = amax(x.in(), n, scratch.data(), pool);
        EXPECT_EQ(amax_got.value, static_cast<float>(top));
        EXPECT_TRUE(amax_got.finite);
        for (const float flaw : {NAN, INFINITY, -INFINITY}) {
          x.set(n - 1, flaw);
          EXPECT_FALSE(sum_of_squares(x.in(), n, scratch.data(), pool).finite) << target;
          EXPECT_FALSE(amax(x.in(), n, scratch.data(), pool).finite) << target;
        }
      }
    }
  });
}

// Moments in f32, beside an f32 weight or a bf16 one with its remainder.
struct AdamWProblem {
  int64_t n;
  Buffer grad, weight, high, m, v;
  std::vector<int16_t> remainder;
  explicit AdamWProblem(Dtype d, int64_t size = 1037)
      : n(size),
        grad(d, n),
        weight(Dtype::f32, n),
        high(Dtype::bf16, n),
        m(Dtype::f32, n),
        v(Dtype::f32, n),
        remainder(static_cast<size_t>(n)) {
    grad.randomize(1);
    weight.randomize(2, 0.02);
    m.randomize(3, 0.1);
    v.randomize(4, 0.1);
    for (int64_t i = 0; i < n; ++i) {
      v.set(i, static_cast<float>(std::abs(v.at(i))));
      const uint32_t bits = __builtin_bit_cast(uint32_t, weight.f32()[i]);
      const uint16_t top = static_cast<uint16_t>((bits + 0x8000u) >> 16);
      std::memcpy(static_cast<char*>(high.data()) + 2 * i, &top, 2);
      remainder[i] = static_cast<int16_t>(bits - (static_cast<uint32_t>(top) << 16));
    }
  }
  float master(int64_t i) const {
    uint16_t top;
    std::memcpy(&top, static_cast<const char*>(high.data()) + 2 * i, 2);
    const uint32_t bits = (static_cast<uint32_t>(top) << 16) + static_cast<uint32_t>(remainder[i]);
    return __builtin_bit_cast(float, bits);
  }
};

const AdamwConstants kConstants{0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 0.1f, 1e-3f, 0.19f, 0.0975f, 0.5f};

void step(AdamWProblem& p, WeightStore store, const AdamwConstants& k, ThreadPool& pool,
          uint8_t skip = 0) {
  const Out weight = store == WeightStore::remainder ? p.high.out() : p.weight.out();
  adamw_groups({.grad = p.grad.in(),
                .weight_from = weight,
                .weight_to = weight,
                .store = store,
                .master_from = p.remainder.data(),
                .master_to = p.remainder.data(),
                .m = {{.moment = Moment::first}, p.m.data(), p.m.data()},
                .v = {{.moment = Moment::second}, p.v.data(), p.v.data()},
                .skip = &skip},
               k, p.n, pool);
}

TEST(adamw, every_bit_follows_the_written_order) {
  ThreadPool pool(2);
  for_each_target([&](const std::string& target) {
    for (const Dtype d : kStorage) {
      AdamWProblem p(d);
      std::vector<float> want;
      const AdamwConstants& k = kConstants;
      for (int64_t i = 0; i < p.n; ++i) {
        const float g = static_cast<float>(p.grad.at(i)) * k.grad_scale;
        const float m = k.beta1 * p.m.f32()[i] + k.rest1 * g;
        const float v = k.beta2 * p.v.f32()[i] + (k.rest2 * g) * g;
        const float w = p.weight.f32()[i];
        const float ratio = (m / k.c1) / (std::sqrt(v / k.c2) + k.eps);
        want.push_back(w - k.lr * (ratio + k.weight_decay * w));
      }
      AdamWProblem split(d);
      step(p, WeightStore::plain, k, pool);
      step(split, WeightStore::remainder, k, pool);
      for (int64_t i = 0; i < p.n; ++i) {
        ASSERT_EQ(p.weight.f32()[i], want[i]) << target << " " << i;
        ASSERT_EQ(split.master(i), want[i]) << target << " " << i;
      }
      EXPECT_TRUE(split.m == p.m && split.v == p.v);
    }
  });
}

TEST(adamw, remainder_weights_survive_ties_large_values_and_nan) {
  ThreadPool pool(1);
  const AdamwConstants still{0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 0, 0, 1, 1, 1};
  for_each_target([&](const std::string& target) {
    AdamWProblem p(Dtype::f32);
    const uint32_t cases[] = {0x3F808000, 0x3F818000, 0x7F7FFFFF,
                              0xFF7FFFFF, 0x00008000, 0x80000001};
    for (int i = 0; i < 6; ++i) {
      const uint16_t top = static_cast<uint16_t>((cases[i] + 0x8000u) >> 16);
      std::memcpy(static_cast<char*>(p.high.data()) + 2 * i, &top, 2);
      p.remainder[i] = static_cast<int16_t>(cases[i] - (static_cast<uint32_t>(top) << 16));
    }
    p.grad.set(7, NAN);
    step(p, WeightStore::remainder, still, pool);
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(__builtin_bit_cast(uint32_t, p.master(i)), cases[i]) << target;
    }
    EXPECT_TRUE(std::isnan(p.master(7)));
    EXPECT_TRUE(std::isnan(p.high.at(7)));
  });
}

TEST(adamw, moments_that_overflow_decay_again) {
  ThreadPool pool(1);
  for_each_target([&](const std::string& target) {
    AdamWProblem p(Dtype::f32);
    p.grad.set(40, 3e38f);  // in the middle of a group
    p.grad.set(p.n - 1, -3e38f);
    step(p, WeightStore::plain, kConstants, pool);
    for (const auto& [i, sign] : {std::pair{int64_t{40}, 1.0f}, {p.n - 1, -1.0f}}) {
      EXPECT_EQ(p.v.f32()[i], std::numeric_limits<float>::max()) << target;
      EXPECT_EQ(p.m.f32()[i], sign * 0x1p64f) << target;
    }
    EXPECT_LT(std::abs(p.m.f32()[41]), 1) << target;
  });
}

// The kernel reads them into a buffer, which holds less than a tensor.
TEST(adamw, bf16_weights_may_become_f32) {
  ThreadPool pool(1);
  for_each_target([&](const std::string& target) {
    AdamWProblem p(Dtype::f32, 5000), wide(Dtype::f32, 5000);
    for (int64_t i = 0; i < p.n; ++i) wide.weight.set(i, static_cast<float>(p.high.at(i)));
    const auto step_from = [&](AdamWProblem& of, Out weight) {
      adamw_groups({.grad = of.grad.in(),
                    .weight_from = weight,
                    .weight_to = of.weight.out(),
                    .m = {{.moment = Moment::first}, of.m.data(), of.m.data()},
                    .v = {{.moment = Moment::second}, of.v.data(), of.v.data()}},
                   kConstants, of.n, pool);
    };
    step_from(p, p.high.out());
    step_from(wide, wide.weight.out());
    EXPECT_TRUE(p.weight == wide.weight && p.m == wide.m && p.v == wide.v) << target;
  });
}

TEST(adamw, a_skipped_step_changes_nothing) {
  ThreadPool pool(1);
  AdamWProblem p(Dtype::f32);
  const AdamWProblem before(Dtype::f32);
  step(p, WeightStore::plain, kConstants, pool, 1);
  EXPECT_TRUE(p.weight == before.weight && p.m == before.m && p.v == before.v);
}

// Elements that they move: parity_test.cpp.
TEST(move, neighbouring_axes_join) {
  const StridedCopy dense = simplified({0, 0, {3, 1, 5, 7}, {35, 35, 7, 1}, {35, 9, 7, 1}});
  EXPECT_EQ(dense.extent, std::vector<int64_t>({105}));
  const StridedCopy columns = simplified({0, 0, {9, 16}, {48, 1}, {16, 1}});
  EXPECT_EQ(columns.extent, std::vector<int64_t>({9, 16}));
}

TEST(move, other_sizes_are_refused) {
  ThreadPool pool(1);
  double from = 1, to = 2;
  EXPECT_THROW(copy_strided(simplified({}), &from, &to, 8, pool), Error);
}

TEST(move, elements_repeat) {
  ThreadPool pool(2);
  std::vector<uint16_t> dst(40001, 1);
  const uint16_t element = 0x3F80;
  fill_elements(dst.data(), 40000, {&element, 2}, pool);
  EXPECT_EQ(dst.back(), 1);
  dst.pop_back();
  EXPECT_EQ(dst, std::vector<uint16_t>(40000, element));
}

TEST(isa, names_round_trip_and_the_best_is_known) {
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  }
  EXPECT_EQ(isa_from_name("sse9"), std::nullopt);
  EXPECT_NO_THROW(limit_isa(detect_isa()));
  EXPECT_NO_THROW(limit_isa(Isa::scalar));
  EXPECT_NO_THROW(limit_isa(detect_isa()));
  if (detect_isa() < Isa::amx) {
    EXPECT_THROW(limit_isa(Isa::amx), Error);
  }
}

}  // namespace
}  // namespace octet::cpu
