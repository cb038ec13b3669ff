// The update's loops: what a faster way must not change.
#include "backends/cpu/adamw/adamw_vectors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "formats/bits.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

constexpr int64_t kCount = 1 << 14;

// Magnitudes of every exponent that floats have, both signs; or those of a training run.
std::vector<float> numbers(uint64_t name, bool any, bool positive) {
  const RandomStream random{.name = name};
  std::vector<float> x(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    const uint32_t bits = random.bits(static_cast<uint64_t>(i));
    const uint32_t exponent = any ? bits >> 23 & 0xFFu : 80 + (bits >> 23) % 50;
    x[i] = float_of((positive ? 0 : bits & 0x80000000u) | exponent << 23 | (bits & 0x7FFFFFu));
  }
  return x;
}

struct Results {
  std::vector<float> w, m, v;
  std::vector<BitRanges> ranges;
};

Results update(bool any, float c1, float c2, bool multiply) {
  const auto g = numbers(1, any, false), w = numbers(2, false, false);
  auto m = numbers(3, any, false), v = numbers(4, any, true);
  for (int64_t i = 0; i < kCount; i += 97) m[i] = i % 2 == 0 ? 0.0f : -0.0f;
  if (any) v[5] = std::numeric_limits<float>::quiet_NaN();
  Results r{std::vector<float>(kCount), std::vector<float>(kCount), std::vector<float>(kCount),
            std::vector<BitRanges>(kCount / 128)};
  UpdateSpan span;
  span.grad = {g.data(), Dtype::f32};
  span.w = w.data();
  span.w_to = r.w.data();
  span.m = m.data();
  span.v = v.data();
  span.m_to = r.m.data();
  span.v_to = r.v.data();
  span.group = 128;
  span.multiply = multiply;
  const AdamwConstants k{0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 0.1f, 1e-3f, c1, c2, 1.0f};
  adamw_vectors().update(k, span, kCount, r.ranges.data());
  return r;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(adamw_vectors, multiplying_gives_the_bits_of_dividing) {
  for_each_target([&](const std::string& target) {
    for (const bool any : {false, true}) {
      for (const float c1 : {1.0f, 0.1f, 0.65132f, 0x1.fffffep-1f, 0x1.fffffep-3f, 1e-5f, 3.0f}) {
        for (const float c2 : {1.0f, 0.05f, 0.0010004f, 0x1.000002p-4f, 0x1p-30f}) {
          const Results fast = update(any, c1, c2, true), want = update(any, c1, c2, false);
          EXPECT_TRUE(same_bits(fast.w, want.w)) << target << " " << any << " " << c1 << " " << c2;
          EXPECT_TRUE(same_bits(fast.m, want.m));
          EXPECT_TRUE(same_bits(fast.v, want.v));
        }
      }
    }
  });
}

TEST(adamw_vectors, ranges_leave_out_zeros) {
  for_each_target([&](const std::string& target) {
    for (const bool any : {false, true}) {
      const Results r = update(any, 0.1f, 0.05f, false);
      for (size_t group = 0; group < r.ranges.size(); ++group) {
        BitRange want{0, kF32Inf};
        for (size_t i = group * 128; i < (group + 1) * 128; ++i) {
          const uint32_t magnitude = bits_of(r.m[i]) & kF32Magnitude;
          want.amax = std::max(want.amax, magnitude);
          if (magnitude != 0) want.amin = std::min(want.amin, magnitude);
        }
        EXPECT_EQ(r.ranges[group].m.amax, want.amax) << target;
        EXPECT_EQ(r.ranges[group].m.amin, want.amin) << target;
      }
    }
  });
  std::vector<float> zeros(64), out(3 * 64);
  BitRanges range;
  UpdateSpan span;
  span.grad = {zeros.data(), Dtype::f32};
  span.w = span.m = span.v = zeros.data();
  span.w_to = out.data();
  span.m_to = out.data() + 64;
  span.v_to = out.data() + 128;
  span.group = 64;
  const AdamwConstants k{0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 0, 1e-3f, 1, 1, 1};
  adamw_vectors().update(k, span, 64, &range);
  EXPECT_EQ(range.m.amax, 0u);
  EXPECT_EQ(range.m.amin, kF32Inf);
}

TEST(adamw_vectors, random_words_are_philox) {
  const RandomStream stream{.name = 0x123456789abcdefull, .seed = 7, .step = 3, .micro_batch = 1};
  for_each_target([&](const std::string& target) {
    for (const int64_t first :
         {int64_t{0}, int64_t{4}, (int64_t{1} << 34) - 64, int64_t{1} << 36}) {
      std::vector<uint32_t> words(256);
      adamw_vectors().random(stream, first, 256, words.data());
      for (uint64_t i = 0; i < words.size(); ++i)
        ASSERT_EQ(words[i], stream.bits(static_cast<uint64_t>(first) + i)) << target << " " << i;
    }
  });
}

}  // namespace
}  // namespace octet::cpu
