#include "backends/cpu/loss/cross_entropy.h"
#include "backends/cpu/loss/embedding.h"
#include "backends/cpu/norm/norm.h"
#include "backends/cpu/rope/rope.h"
#include "base/error.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

using Doubles = std::vector<double>;

Doubles zeros(int64_t n) {
  return Doubles(static_cast<size_t>(n));
}

constexpr RowShape kShapes[] = {{1, 1}, {3, 17}, {17, 31}, {130, 5}, {66, 513}};

struct NormProblem {
  RowShape shape;
  int64_t n;
  Buffer x, w, b, dy, residual, y, rstd, mean, dx, dw, db;
  NormProblem(RowShape s, Dtype d)
      : shape(s),
        n(s.rows * s.cols),
        x(d, n),
        w(Dtype::f32, s.cols),
        b(d, s.cols),
        dy(d, n),
        residual(d, n),
        y(d, n),
        rstd(Dtype::f32, s.rows),
        mean(Dtype::f32, s.rows),
        dx(d, n),
        dw(Dtype::f32, s.cols),
        db(d, s.cols) {
    x.randomize(1, 3.0);
    w.randomize(2);
    b.randomize(3);
    dy.randomize(4);
    residual.randomize(5);
  }
  double at(const Buffer& m, int64_t r, int64_t c) const { return m.at(r * shape.cols + c); }
};

struct NormReference {
  Doubles y, dx, dw, db;
};

// Both norms, written out; without weight, bias or residual where those are off.
NormReference norm_reference(const NormProblem& p, bool centred, bool affine, bool residual) {
  const auto [rows, cols] = p.shape;
  NormReference r{zeros(p.n), zeros(p.n), zeros(cols), zeros(cols)};
  for (int64_t i = 0; i < rows; ++i) {
    double mean = 0, square = 0;
    for (int64_t c = 0; centred && c < cols; ++c) mean += p.at(p.x, i, c) / cols;
    for (int64_t c = 0; c < cols; ++c) square += std::pow(p.at(p.x, i, c) - mean, 2) / cols;
    const double rstd = 1 / std::sqrt(square + 1e-3);
    const auto h = [&](int64_t c) { return (p.at(p.x, i, c) - mean) * rstd; };
    const auto g = [&](int64_t c) { return p.at(p.dy, i, c) * (affine ? p.w.at(c) : 1); };
    double mean_g = 0, mean_gh = 0;
    for (int64_t c = 0; c < cols; ++c) {
      mean_g += centred ? g(c) / cols : 0;
      mean_gh += g(c) * h(c) / cols;
    }
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t at = i * cols + c;
      r.y[at] = h(c) * (affine ? p.w.at(c) : 1) + (affine && centred ? p.b.at(c) : 0);
      r.dx[at] = rstd * (g(c) - mean_g - h(c) * mean_gh) + (residual ? p.residual.at(at) : 0);
      r.dw[c] += p.at(p.dy, i, c) * h(c);
      r.db[c] += p.at(p.dy, i, c);
    }
  }
  return r;
}

void run_norm(NormProblem& p, bool centred, bool affine, bool residual, int n_threads) {
  ThreadPool pool(n_threads);
  std::vector<float> scratch(static_cast<size_t>(norm_backward_scratch(p.shape, 2)), NAN);
  const In w = affine ? p.w.in() : In{}, res = residual ? p.residual.in() : In{};
  if (centred) {
    layer_norm(
        {p.x.in(), w, affine ? p.b.in() : In{}, p.y.out(), p.mean.f32(), p.rstd.f32(), 1e-3f},
        p.shape, pool);
    layer_norm_backward({p.x.in(), w, p.dy.in(), res, p.mean.f32(), p.rstd.f32(), p.dx.out(),
                         p.dw.out(), p.db.out(), scratch.data()},
                        p.shape, pool);
  } else {
    rms_norm({p.x.in(), w, p.y.out(), p.rstd.f32(), 1e-3f}, p.shape, pool);
    rms_norm_backward(
        {p.x.in(), w, p.dy.in(), res, p.rstd.f32(), p.dx.out(), p.dw.out(), scratch.data()},
        p.shape, pool);
  }
}

TEST(norm, both_norms_and_their_gradients_match_double_loops) {
  for_each_target([&](const std::string& target) {
    for (const RowShape shape : kShapes) {
      for (const Dtype d : kStorage) {
        for (const int options : {0, 1, 2, 3}) {
          const bool affine = options & 1, residual = options & 2;
          for (const bool centred : {false, true}) {
            NormProblem p(shape, d);
            const NormReference want = norm_reference(p, centred, affine, residual);
            run_norm(p, centred, affine, residual, 2);
            const std::string what =
                fmt::format("{} {}x{} {} options {} centred {}", target, shape.rows, shape.cols,
                            dtype_name(d), options, centred);
            expect_close(p.y, want.y, 3e-6, what + " y");
            expect_close(p.dx, want.dx, 2e-5, what + " dx", 1.0);
            expect_close(p.dw, want.dw, 1e-5, what + " dw", 1.0);
            if (centred) expect_close(p.db, want.db, 1e-5, what + " db");
          }
        }
      }
    }
  });
}

TEST(norm, same_bits_for_any_number_of_threads) {
  for (const bool centred : {false, true}) {
    NormProblem first({200, 33}, Dtype::bf16);
    run_norm(first, centred, true, true, 1);
    for (const int n : kThreadCounts) {
      NormProblem p({200, 33}, Dtype::bf16);
      run_norm(p, centred, true, true, n);
      EXPECT_TRUE(p.y == first.y && p.dx == first.dx && p.dw == first.dw) << n;
      EXPECT_TRUE(!centred || p.db == first.db) << n;
    }
  }
}

TEST(norm, a_nan_stays_in_its_row) {
  NormProblem p({5, 33}, Dtype::f32);
  p.x.set(2 * 33 + 7, NAN);
  run_norm(p, false, true, false, 2);
  for (int64_t i = 0; i < p.n; ++i) ASSERT_EQ(std::isnan(p.y.at(i)), i / 33 == 2) << i;
}

TEST(rows, bias_and_column_sum_match_double_loops) {
  for_each_target([&](const std::string& target) {
    for (const RowShape shape : kShapes) {
      for (const Dtype d : kStorage) {
        NormProblem p(shape, d);
        Doubles biased = zeros(p.n), sums = zeros(shape.cols);
        for (int64_t i = 0; i < p.n; ++i) {
          biased[i] = p.x.at(i) + p.b.at(i % shape.cols);
          sums[i % shape.cols] += p.x.at(i);
        }
        ThreadPool pool(3);
        std::vector<float> scratch(static_cast<size_t>(norm_backward_scratch(shape, 1)), NAN);
        add_bias(p.x.in(), p.b.in(), p.y.out(), shape, pool);
        column_sum(p.x.in(), p.dw.out(), scratch.data(), shape, pool);
        expect_close(p.y, biased, 1e-7, target + " bias");
        expect_close(p.dw, sums, 1e-6, target + " sum");
      }
    }
  });
}

TEST(rope, turns_pairs_and_turns_back) {
  const RopeShape shape{19, 3, 10, 40};
  Buffer cos(Dtype::f32, 40 * 5), sin(Dtype::f32, 40 * 5);
  for (int64_t i = 0; i < cos.size(); ++i) {
    const double angle = static_cast<double>(i / 5) * std::pow(100.0, -0.2 * (i % 5));
    cos.set(i, static_cast<float>(std::cos(angle)));
    sin.set(i, static_cast<float>(std::sin(angle)));
  }
  std::vector<int32_t> positions;
  for (int t = 0; t < 19; ++t) positions.push_back((t * 7) % 40);
  for_each_target([&](const std::string& target) {
    for (const Dtype d : kStorage) {
      Buffer x(d, 19 * 33), y(d, 19 * 30),
          back(d, 19 * 30);  // rows of x have three elements to spare
      x.randomize(1);
      Doubles want = zeros(y.size()), original = zeros(y.size());
      for (int64_t t = 0; t < 19; ++t) {
        for (int64_t i = 0; i < 30; ++i) {
          const int64_t head = i / 10, j = i % 10, at = positions[t] * 5 + j % 5;
          const double lo = x.at(t * 33 + head * 10 + j % 5),
                       hi = x.at(t * 33 + head * 10 + j % 5 + 5);
          want[t * 30 + i] =
              j < 5 ? lo * cos.at(at) - hi * sin.at(at) : hi * cos.at(at) + lo * sin.at(at);
          original[t * 30 + i] = x.at(t * 33 + i);
        }
      }
      ThreadPool pool(2);
      Rope args{x.in(), y.out(), cos.f32(), sin.f32(), positions.data(), 33};
      rope(args, shape, pool);
      expect_close(y, want, 2e-7, target);
      rope({y.in(), back.out(), cos.f32(), sin.f32(), positions.data(), 0, 0, Rotation::inverse},
           shape, pool);
      expect_close(back, original, d == Dtype::f32 ? 5e-7 : 8e-3, target + " inverse");
    }
  });
}

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

struct EmbeddingProblem {
  EmbeddingShape shape{97, 23, 37};
  std::vector<int32_t> ids;
  Buffer table, y, dy, dtable;
  explicit EmbeddingProblem(Dtype d)
      : table(d, 23 * 37), y(d, 97 * 37), dy(d, 97 * 37), dtable(d, 23 * 37) {
    for (int t = 0; t < 97; ++t) ids.push_back((t * t + 3) % 23 / 2 * 2);
    table.randomize(1);
    dy.randomize(2);
    dtable.randomize(3);
  }
  void backward(Accumulate accumulate, int n_threads) {
    ThreadPool pool(n_threads);
    std::vector<int32_t> scratch(static_cast<size_t>(embedding_backward_scratch(shape)), -7);
    embedding_backward({dy.in(), ids.data(), dtable.out(), accumulate, scratch.data()}, shape,
                       pool);
  }
};

TEST(embedding, gathers_rows_and_scatters_their_gradients) {
  for_each_target([&](const std::string& target) {
    for (const Dtype d : kStorage) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        EmbeddingProblem p(d);
        Doubles y = zeros(p.y.size()), dtable = zeros(p.dtable.size());
        for (int64_t i = 0; i < p.dtable.size() && accumulate == Accumulate::yes; ++i) {
          dtable[i] = p.dtable.at(i);
        }
        for (int64_t i = 0; i < p.y.size(); ++i) {
          y[i] = p.table.at(p.ids[i / 37] * 37 + i % 37);
          dtable[p.ids[i / 37] * 37 + i % 37] += p.dy.at(i);
        }
        ThreadPool pool(2);
        embedding(p.table.in(), p.ids.data(), p.y.out(), p.shape, pool);
        p.backward(accumulate, 2);
        expect_close(p.y, y, 0, target);
        expect_close(p.dtable, dtable, 1e-6, target + " gradient");
      }
    }
  });
}

TEST(embedding, same_bits_for_any_number_of_threads_and_bad_tokens_are_refused) {
  EmbeddingProblem first(Dtype::bf16);
  first.backward(Accumulate::yes, 1);
  for (const int n : kThreadCounts) {
    EmbeddingProblem p(Dtype::bf16);
    p.backward(Accumulate::yes, n);
    EXPECT_TRUE(p.dtable == first.dtable) << n;
  }
  first.ids[5] = 23;
  EXPECT_THROW(first.backward(Accumulate::no, 1), Error);
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

TEST(cross_entropy, loss_and_gradient_match_double_loops) {
  for_each_target([&](const std::string& target) {
    for (const CrossEntropyShape shape :
         {CrossEntropyShape{1, 1}, {7, 17}, {9, 31}, {6, 513}, {5, 9001}}) {
      for (const Dtype d : kStorage) {
        LossProblem p(shape, d);
        Doubles loss = zeros(shape.rows), dx = zeros(p.dx.size());
        for (int64_t r = 0; r < shape.rows; ++r) {
          double total = 0;
          for (int64_t c = 0; c < shape.classes; ++c)
            total += std::exp(p.x.at(r * shape.classes + c));
          if (p.labels[r] < 0) continue;
          loss[r] = std::log(total) - p.x.at(r * shape.classes + p.labels[r]);
          for (int64_t c = 0; c < shape.classes; ++c) {
            dx[r * shape.classes + c] =
                0.75 * (std::exp(p.x.at(r * shape.classes + c)) / total - (c == p.labels[r]));
          }
        }
        p.run(2);
        const std::string what = fmt::format("{} {} {}", target, shape.classes, dtype_name(d));
        expect_close(p.loss, loss, 1e-6, what + " loss", 8.0);
        expect_close(p.dx, dx, 2e-6, what + " dx", 1.0);
        LossProblem again(shape, d);
        again.run(5);
        EXPECT_TRUE(again.loss == p.loss && again.dx == p.dx) << what;
      }
    }
  });
}

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
