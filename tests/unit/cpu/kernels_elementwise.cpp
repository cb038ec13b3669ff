#include "backends/cpu/elementwise/elementwise.h"

#include <cfenv>
#include <functional>
#include <map>

#include "backends/cpu/adamw/adamw.h"
#include "backends/cpu/common/isa.h"
#include "backends/cpu/elementwise/reduce.h"
#include "base/error.h"
#include "ir/op_def.h"
#include "math/elementwise.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

using Doubles = std::vector<double>;
using Function = std::function<double(double)>;

constexpr int64_t kLengths[] = {1, 3, 17, 31, 513};

double gelu_erf(double x) {
  return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
}
double gelu_tanh(double x) {
  return x * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}

const std::pair<GeluKind, Function> kGelus[] = {{GeluKind::erf, gelu_erf},
                                                {GeluKind::tanh, gelu_tanh}};

double slope(const Function& f, double x) {
  const double h = 1e-5;
  return (f(x + h) - f(x - h)) / (2 * h);
}

Doubles map(const Buffer& x, const Function& f) {
  Doubles y;
  for (int64_t i = 0; i < x.size(); ++i) y.push_back(f(x.at(i)));
  return y;
}

TEST(gelu, both_kinds_and_their_slopes_match_double) {
  ThreadPool pool(2);
  for_each_target([&](const std::string& target) {
    for (const auto& [kind, f] : kGelus) {
      for (const Dtype from : kStorage) {
        for (const Dtype to : kStorage) {
          for (const int64_t n : kLengths) {
            Buffer x(from, n), dy(to, n), y(to, n), dx(from, n);
            x.randomize(1, 2.0);
            dy.randomize(2);
            const std::string what = fmt::format("{} {} n {}", target, enum_name(kind), n);
            gelu(kind, x.in(), y.out(), n, pool);
            expect_close(y, map(x, f), 2e-7, what);
            Doubles want;
            for (int64_t i = 0; i < n; ++i) want.push_back(dy.at(i) * slope(f, x.at(i)));
            gelu_backward({kind, x.in(), dy.in(), dx.out()}, n, pool);
            expect_close(dx, want, 1e-6, what + " slope");
          }
        }
      }
    }
  });
}

TEST(gelu, nan_goes_through_and_what_is_large_stays) {
  ThreadPool pool(1);
  for_each_target([&](const std::string& target) {
    for (const auto& [kind, f] : kGelus) {
      Buffer x(Dtype::f32, 4), y(Dtype::f32, 4);
      const float values[] = {NAN, INFINITY, 1000.0f, -1000.0f};
      for (int i = 0; i < 4; ++i) x.set(i, values[i]);
      gelu(kind, x.in(), y.out(), 4, pool);
      EXPECT_TRUE(std::isnan(y.at(0))) << target;
      EXPECT_EQ(y.at(1), INFINITY) << target;
      EXPECT_EQ(y.at(2), 1000.0) << target;
      EXPECT_EQ(y.at(3), 0.0) << target;
    }
  });
}

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

TEST(elementwise, what_vectors_compute_is_the_functions_value_rounded_once) {
  const std::map<OpCode, std::function<double(double, double)>> functions = {
#define ELEMENT(op, ...) {OpCode::op, op##_of<double>},
#include "math/elementwise.def"
  };
  ThreadPool pool(2);
  int n_ops = 0;
  for_each_target([&](const std::string& target) {
    for (const auto& [op, f] : functions) {
      if (!has_lanes(op)) continue;
      ++n_ops;
      const bool is_unary = op_def(op).operands.size() == 1;
      const std::string what = fmt::format("{} {}", target, op_def(op).name);
      for (const Dtype d : kStorage) {
        for (const int64_t n : kLengths) {
          Buffer a(d, n), b(Dtype::f32, n), y(d, n);
          a.randomize(1);
          b.randomize(2);
          for (int64_t i = 0; i < n && op == OpCode::sqrt; ++i)
            a.set(i, static_cast<float>(std::abs(a.at(i))));
          const In second = is_unary ? In{} : b.in();
          elementwise({op, a.in(), second, y.out()}, n, pool);
          for (int64_t i = 0; i < n; ++i) {
            const auto want = static_cast<float>(f(a.at(i), b.at(i)));
            ASSERT_EQ(y.at(i), d == Dtype::f32 ? want : bf16_to_f32(f32_to_bf16(want))) << what;
          }
          a.set(n / 2, NAN);
          elementwise({op, a.in(), second, y.out()}, n, pool);
          EXPECT_TRUE(std::isnan(y.at(n / 2))) << what;
          if (is_unary) continue;
          elementwise({op, b.in(), a.in(), y.out()}, n, pool);
          EXPECT_TRUE(std::isnan(y.at(n / 2))) << what;
        }
      }
    }
  });
  EXPECT_GE(n_ops, 8);
}

TEST(scaled_sum, one_or_two_terms_and_in_place) {
  ThreadPool pool(2);
  for (const int64_t n : kLengths) {
    Buffer a(Dtype::bf16, n), b(Dtype::f32, n), y(Dtype::f32, n);
    a.randomize(1);
    b.randomize(2);
    Doubles one, two;
    for (int64_t i = 0; i < n; ++i) {
      one.push_back(0.5 * a.at(i));
      two.push_back(0.5 * a.at(i) - 3 * b.at(i));
    }
    scaled_sum({a.in(), {}, y.out(), 0.5f}, n, pool);
    expect_close(y, one, 0, "one term");
    scaled_sum({a.in(), b.in(), b.out(), 0.5f, -3.0f}, n, pool);
    expect_close(b, two, 1e-7, "in place");
    fill(y.out(), 2.5f, n, pool);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y.at(i), 2.5);
    EXPECT_TRUE(y.guards_intact());
  }
}

TEST(gated_silu, forward_and_backward_match_double) {
  ThreadPool pool(2);
  for_each_target([&](const std::string& target) {
    for (const Dtype d : kStorage) {
      for (const int64_t n : {int64_t{1}, int64_t{31}, int64_t{40000}}) {
        Buffer gate(d, n), up(d, n), dy(d, n), y(d, n), dgate(d, n), dup(d, n);
        gate.randomize(1, 3.0);
        up.randomize(2);
        dy.randomize(3);
        Doubles want_y, want_gate, want_up;
        for (int64_t i = 0; i < n; ++i) {
          const double s = sigmoid(gate.at(i));
          want_y.push_back(silu(gate.at(i)) * up.at(i));
          want_gate.push_back(dy.at(i) * up.at(i) * (s + gate.at(i) * s * (1 - s)));
          want_up.push_back(dy.at(i) * silu(gate.at(i)));
        }
        gated_silu(gate.in(), up.in(), y.out(), n, pool);
        gated_silu_backward({gate.in(), up.in(), dy.in(), dgate.out(), dup.out()}, n, pool);
        expect_close(y, want_y, 3e-7, target);
        expect_close(dgate, want_gate, 3e-7, target);
        expect_close(dup, want_up, 3e-7, target);
      }
    }
  });
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

struct AdamWProblem {
  int64_t n = 1037;
  Buffer grad, weight, high, m, v, copy;
  std::vector<int16_t> remainder;
  explicit AdamWProblem(Dtype d)
      : grad(d, n),
        weight(Dtype::f32, n),
        high(Dtype::bf16, n),
        m(Dtype::f32, n),
        v(Dtype::f32, n),
        copy(Dtype::bf16, n),
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

const AdamWScalars kScalars{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.19f, 0.0975f, 0.5f};

TEST(adamw, every_bit_follows_the_written_order) {
  ThreadPool pool(2);
  for_each_target([&](const std::string& target) {
    for (const Dtype d : kStorage) {
      AdamWProblem p(d);
      std::vector<float> want;
      const AdamWScalars& s = kScalars;
      for (int64_t i = 0; i < p.n; ++i) {
        const float g = static_cast<float>(p.grad.at(i)) * s.grad_scale;
        const float m = s.beta1 * p.m.f32()[i] + (1.0f - s.beta1) * g;
        const float v = s.beta2 * p.v.f32()[i] + ((1.0f - s.beta2) * g) * g;
        const float w = p.weight.f32()[i];
        const float ratio = (m / s.correction1) / (std::sqrt(v / s.correction2) + s.eps);
        want.push_back(w - s.lr * (ratio + s.weight_decay * w));
      }
      AdamWProblem split(d);
      adamw_step({p.grad.in(), p.weight.out(), nullptr, p.m.f32(), p.v.f32(), p.copy.out()},
                 kScalars, p.n, pool);
      adamw_step(
          {split.grad.in(), split.high.out(), split.remainder.data(), split.m.f32(), split.v.f32()},
          kScalars, p.n, pool);
      for (int64_t i = 0; i < p.n; ++i) {
        ASSERT_EQ(p.weight.f32()[i], want[i]) << target << " " << i;
        ASSERT_EQ(split.master(i), want[i]) << target << " " << i;
        ASSERT_EQ(p.copy.at(i), bf16_to_f32(f32_to_bf16(want[i])));
      }
      EXPECT_TRUE(split.m == p.m && split.v == p.v);
    }
  });
}

TEST(adamw, remainder_weights_survive_ties_large_values_and_nan) {
  ThreadPool pool(1);
  const AdamWScalars still{0.0f, 0.9f, 0.95f, 1e-8f, 0.0f};
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
    adamw_step({p.grad.in(), p.high.out(), p.remainder.data(), p.m.f32(), p.v.f32()}, still, p.n,
               pool);
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(__builtin_bit_cast(uint32_t, p.master(i)), cases[i]) << target;
    }
    EXPECT_TRUE(std::isnan(p.master(7)));
    EXPECT_TRUE(std::isnan(p.high.at(7)));
  });
}

TEST(adamw, a_skipped_step_changes_nothing_and_bf16_needs_a_remainder) {
  ThreadPool pool(1);
  AdamWProblem p(Dtype::f32);
  const AdamWProblem before(Dtype::f32);
  const uint8_t skip = 1;
  AdamW args{p.grad.in(), p.weight.out(), nullptr, p.m.f32(), p.v.f32()};
  args.skip = &skip;
  adamw_step(args, kScalars, p.n, pool);
  EXPECT_TRUE(p.weight == before.weight && p.m == before.m && p.v == before.v);
  args.weight = p.high.out();
  EXPECT_THROW(adamw_step(args, kScalars, p.n, pool), Error);
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
