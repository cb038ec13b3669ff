#include <utility>

#include "backends/cpu/loss/cross_entropy.h"
#include "backends/cpu/loss/embedding.h"
#include "backends/cpu/rope/rope.h"
#include "base/error.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

// With a table of any length, none included, and more pairs than are made at once.
TEST(rope, positions_beyond_the_table_have_the_bits_of_a_longer_one) {
  constexpr int64_t kHalf = 300, kLongest = 64;
  const RopeShape longest{4, 2, 2 * kHalf, kLongest};
  std::vector<double> frequencies;
  for (int64_t i = 0; i < kHalf; ++i)
    frequencies.push_back(std::pow(100.0, -static_cast<double>(i) / kHalf));
  Buffer cos(Dtype::f32, kLongest * kHalf), sin(Dtype::f32, kLongest * kHalf);
  for (int64_t i = 0; i < cos.size(); ++i) {
    const double angle =
        static_cast<double>(i / kHalf) * frequencies[static_cast<size_t>(i % kHalf)];
    cos.set(i, static_cast<float>(std::cos(angle)));
    sin.set(i, static_cast<float>(std::sin(angle)));
  }
  const std::vector<int32_t> positions = {0, 5, 63, 17};
  ThreadPool pool(2);
  for_each_target([&](const std::string& target) {
    Buffer x(Dtype::f32, 4 * 4 * kHalf), want(Dtype::f32, x.size());
    x.randomize(3);
    Rope args{x.in(), want.out(), cos.f32(), sin.f32(), positions.data()};
    args.frequencies = frequencies.data();
    rope(args, longest, pool);
    for (const int64_t length : {0, 6, 18}) {
      Buffer y(Dtype::f32, x.size());
      args.y = y.out();
      RopeShape shape = longest;
      shape.max_positions = length;
      rope(args, shape, pool);
      for (int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y.at(i), want.at(i)) << target << " " << i;
    }
  });
}

TEST(embedding, gradients_are_sums_of_rows_and_bad_tokens_are_refused) {
  constexpr EmbeddingShape kShape{.tokens = 97, .vocabulary = 23, .cols = 37};
  std::vector<int32_t> ids;
  for (int t = 0; t < 97; ++t) ids.push_back((t * t + 3) % 23 / 2 * 2);
  std::vector<int32_t> scratch(static_cast<size_t>(embedding_backward_scratch(kShape)), -7);
  ThreadPool pool(2);
  for (const Dtype d : kStorage) {
    Buffer dy(d, 97 * 37), dtable(d, 23 * 37);
    dy.randomize(2);
    std::vector<double> want(static_cast<size_t>(dtable.size()));
    for (int64_t i = 0; i < dy.size(); ++i)
      want[static_cast<size_t>(ids[static_cast<size_t>(i / 37)] * 37 + i % 37)] += dy.at(i);
    const auto add = [&] {
      embedding_backward({dy.in(), ids.data(), dtable.out(), scratch.data()}, kShape, pool);
    };
    add();
    expect_close(dtable, want, 1e-6, std::string(dtype_name(d)));
    const int32_t before = std::exchange(ids[5], 23);
    EXPECT_THROW(add(), Error);
    ids[5] = before;
  }
}

struct LossProblem {
  CrossEntropyShape shape;
  Buffer x, loss, lse, dx;
  std::vector<int32_t> labels;
  LossProblem(CrossEntropyShape s, Dtype d)
      : shape(s),
        x(d, s.rows * s.classes),
        loss(Dtype::f32, s.rows),
        lse(Dtype::f32, s.rows),
        dx(d, s.rows * s.classes) {
    x.randomize(1, 4.0);
    for (int64_t r = 0; r < s.rows; ++r) {
      labels.push_back(r % 5 == 3 ? -1 : static_cast<int32_t>(r * 7 % s.classes));
    }
  }
  void run(int n_threads) {
    ThreadPool pool(n_threads);
    const float inv_n = 0.25f, dloss = 3.0f;
    cross_entropy({x.in(), labels.data(), loss.f32(), lse.f32()}, shape, pool);
    cross_entropy_backward({x.in(), labels.data(), lse.f32(), dx.out(), &inv_n, &dloss}, shape,
                           pool);
  }
};

TEST(cross_entropy, large_logits_do_not_overflow_and_nan_shows) {
  LossProblem p({4, 40}, Dtype::f32);
  for (int64_t c = 0; c < 40; ++c) p.x.set(c, 3e38f);
  p.x.set(40 + 5, NAN);
  for (int64_t c = 0; c < 40; ++c) p.x.set(80 + c, -INFINITY);
  p.x.set(80 + 39, NAN);
  p.run(1);
  EXPECT_NEAR(p.lse.at(0), 3e38, 1e32);
  EXPECT_TRUE(std::isnan(p.loss.at(1)));
  EXPECT_TRUE(std::isnan(p.loss.at(2)));
  p.labels[0] = 40;
  EXPECT_THROW(p.run(1), Error);
}

}  // namespace
}  // namespace octet::cpu
