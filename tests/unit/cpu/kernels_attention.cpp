#include "backends/cpu/attention/attention.h"
#include "backends/cpu/common/isa.h"
#include "base/error.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

AttentionSpec spec_of(int64_t batch, int64_t length, int64_t heads, int64_t kv_heads, int64_t dh) {
  AttentionSpec spec;
  spec.batch = batch;
  spec.q_len = spec.kv_len = length;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_size = dh;
  spec.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dh)));
  return spec;
}

struct Reference {
  std::vector<double> o, lse, dq, dk, dv;
};

struct Problem {
  AttentionSpec spec;
  int64_t q_rows, k_rows, q_cols, k_cols;
  Buffer q, k, v, dout, o, lse, dq, dk, dv;

  explicit Problem(const AttentionSpec& s)
      : spec(s),
        q_rows(s.batch * s.q_len),
        k_rows(s.batch * s.kv_len),
        q_cols(s.heads * s.head_size),
        k_cols(s.kv_heads * s.head_size),
        q(s.dtype, q_rows * q_cols),
        k(s.dtype, k_rows * k_cols),
        v(s.dtype, k_rows * k_cols),
        dout(s.dtype, q_rows * q_cols),
        o(s.dtype, q_rows * q_cols),
        lse(Dtype::f32, q_rows * s.heads),
        dq(s.dtype, q_rows * q_cols),
        dk(s.dtype, k_rows * k_cols),
        dv(s.dtype, k_rows * k_cols) {
    q.randomize(1, 2.0);
    k.randomize(2);
    v.randomize(3);
    dout.randomize(4);
  }

  void forward(int n_threads) {
    ThreadPool pool(n_threads);
    const AttentionForward kernel(spec, n_threads);
    Scratch scratch(kernel.scratch_bytes());
    AttentionArgs args{{q.data()}, {k.data()}, {v.data()}, {o.data()}, lse.f32()};
    args.scratch = scratch.get();
    kernel.launch(args, pool);
  }
  void backward(int n_threads) {
    ThreadPool pool(n_threads);
    const AttentionBackward kernel(spec, n_threads);
    Scratch scratch(kernel.scratch_bytes());
    const AttentionBackwardArgs args{.q = {q.data()},
                                     .k = {k.data()},
                                     .v = {v.data()},
                                     .o = {o.data()},
                                     .dout = {dout.data()},
                                     .lse = lse.f32(),
                                     .dq = {dq.data()},
                                     .dk = {dk.data()},
                                     .dv = {dv.data()},
                                     .scratch = scratch.get()};
    kernel.launch(args, pool);
  }
};

// Softmax, output and gradients of one query, added to the reference.
void add_query(const Problem& p, int64_t b, int64_t h, int64_t i, Reference* r) {
  const AttentionSpec& s = p.spec;
  const int64_t dh = s.head_size, kv = h / (s.heads / s.kv_heads);
  const int64_t q_at = (b * s.q_len + i) * p.q_cols + h * dh;
  const auto k_at = [&](int64_t j) { return (b * s.kv_len + j) * p.k_cols + kv * dh; };
  const int64_t n = s.mask == AttentionMask::causal
                        ? std::clamp<int64_t>(i + 1 + s.kv_len - s.q_len, 0, s.kv_len)
                        : s.kv_len;
  std::vector<double> w(static_cast<size_t>(n));
  double top = -INFINITY, total = 0;
  for (int64_t j = 0; j < n; ++j) {
    double x = 0;
    for (int64_t c = 0; c < dh; ++c) x += p.q.at(q_at + c) * p.k.at(k_at(j) + c);
    w[j] = x * s.scale;
    top = std::max(top, w[j]);
  }
  for (double& x : w) total += std::exp(x - top);
  const double lse = top + std::log(total);
  r->lse[(b * s.heads + h) * s.q_len + i] = n == 0 ? -INFINITY : lse;
  double d = 0;
  for (int64_t c = 0; c < dh; ++c) {
    double o = 0;
    for (int64_t j = 0; j < n; ++j) o += std::exp(w[j] - lse) * p.v.at(k_at(j) + c);
    r->o[q_at + c] = o;
    d += o * p.dout.at(q_at + c);
  }
  for (int64_t j = 0; j < n; ++j) {
    const double prob = std::exp(w[j] - lse);
    double dp = 0;
    for (int64_t c = 0; c < dh; ++c) {
      dp += p.dout.at(q_at + c) * p.v.at(k_at(j) + c);
      r->dv[k_at(j) + c] += prob * p.dout.at(q_at + c);
    }
    const double ds = prob * (dp - d) * s.scale;
    for (int64_t c = 0; c < dh; ++c) {
      r->dq[q_at + c] += ds * p.k.at(k_at(j) + c);
      r->dk[k_at(j) + c] += ds * p.q.at(q_at + c);
    }
  }
}

Reference reference(const Problem& p) {
  const auto size = [](const Buffer& x) {
    return std::vector<double>(static_cast<size_t>(x.size()));
  };
  Reference r{size(p.o), size(p.lse), size(p.dq), size(p.dk), size(p.dv)};
  for (int64_t b = 0; b < p.spec.batch; ++b) {
    for (int64_t h = 0; h < p.spec.heads; ++h) {
      for (int64_t i = 0; i < p.spec.q_len; ++i) add_query(p, b, h, i, &r);
    }
  }
  return r;
}

void check(const AttentionSpec& spec) {
  Problem p(spec);
  const Reference want = reference(p);
  const std::string what =
      fmt::format("T {}x{} heads {}/{} dh {} {}", spec.q_len, spec.kv_len, spec.heads,
                  spec.kv_heads, spec.head_size, dtype_name(spec.dtype));
  // bf16 products round P and dS to 8 bits.
  const double bound = spec.dtype == Dtype::f32 || spec.compute == Dtype::f32 ? 2e-6 : 6e-3;
  p.forward(2);
  expect_close(p.o, want.o, bound, what + " o");
  expect_close(p.lse, want.lse, 2e-6, what + " lse");
  p.backward(2);
  // The stored o is rounded, which moves D.
  const double gradient = spec.dtype == Dtype::f32 ? 4e-6 : 1.2e-2;
  expect_close(p.dq, want.dq, gradient, what + " dq", 1.0);
  expect_close(p.dk, want.dk, gradient, what + " dk", 1.0);
  expect_close(p.dv, want.dv, gradient, what + " dv", 1.0);
}

TEST(attention, matches_the_naive_formula_for_any_length_and_head_size) {
  for (const Dtype dtype : kStorage) {
    for (const int64_t length : {1, 17, 64, 130}) {
      for (const int64_t dh : {5, 8, 64}) {
        AttentionSpec spec = spec_of(2, length, 2, 1, dh);
        spec.dtype = dtype;
        check(spec);
      }
    }
  }
}

TEST(attention, no_mask_large_heads_and_groups_are_right) {
  for (const Dtype dtype : kStorage) {
    AttentionSpec spec = spec_of(1, 75, 6, 2, 128);
    spec.dtype = dtype;
    spec.mask = AttentionMask::full;
    check(spec);
    AttentionSpec own = spec_of(2, 33, 3, 3, 16);
    own.dtype = dtype;
    check(own);
  }
}

TEST(attention, several_blocks_of_queries_and_keys_are_right) {
  AttentionSpec spec = spec_of(1, 300, 2, 1, 8);
  check(spec);
  spec.dtype = Dtype::bf16;
  check(spec);
}

TEST(attention, fewer_or_more_queries_than_keys) {
  AttentionSpec spec = spec_of(1, 1, 2, 1, 16);
  spec.kv_len = 70;
  check(spec);
  spec.q_len = 9;
  check(spec);
  spec.mask = AttentionMask::full;
  spec.q_len = 80;
  check(spec);
}

TEST(attention, a_query_without_keys_gets_zero) {
  AttentionSpec spec = spec_of(1, 9, 1, 1, 8);
  spec.kv_len = 4;
  Problem p(spec);
  p.forward(1);
  p.backward(1);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(p.lse.at(i), -INFINITY);
    for (int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(p.o.at(i * 8 + c), 0.0);
      EXPECT_EQ(p.dq.at(i * 8 + c), 0.0);
    }
  }
  EXPECT_TRUE(std::isfinite(p.dk.at(0)));
}

TEST(attention, f32_products_of_bf16_storage_are_closer) {
  AttentionSpec spec = spec_of(1, 70, 2, 2, 32);
  spec.dtype = Dtype::bf16;
  spec.compute = Dtype::f32;
  check(spec);
}

TEST(attention, right_on_every_vector_target) {
  for_each_target([&](const std::string&) {
    for (const Dtype dtype : kStorage) {
      AttentionSpec spec = spec_of(1, 67, 2, 1, 24);
      spec.dtype = dtype;
      check(spec);
    }
  });
}

TEST(attention, a_nan_reaches_what_depends_on_it_and_nothing_earlier) {
  Problem p(spec_of(1, 40, 1, 1, 8));
  p.v.set(20 * 8 + 3, std::nanf(""));
  p.forward(1);
  for (int64_t i = 0; i < 40; ++i) {
    // Blocks multiply masked zeros by NaN, so only earlier blocks are promised clean; the sum must
    // show it from row 20 on.
    if (i >= 20) {
      EXPECT_TRUE(std::isnan(p.o.at(i * 8 + 3))) << i;
    }
    EXPECT_FALSE(std::isnan(p.o.at(i * 8 + 2))) << i;
  }
}

TEST(attention, same_bits_for_any_number_of_threads) {
  for (const Dtype dtype : kStorage) {
    AttentionSpec spec = spec_of(2, 150, 4, 2, 24);
    spec.dtype = dtype;
    Problem first(spec);
    first.forward(1);
    first.backward(1);
    for (const int n : kThreadCounts) {
      Problem p(spec);
      p.forward(n);
      p.backward(n);
      EXPECT_TRUE(p.o == first.o && p.lse == first.lse) << n << " threads";
      EXPECT_TRUE(p.dq == first.dq && p.dk == first.dk && p.dv == first.dv) << n << " threads";
    }
  }
}

TEST(attention, scratch_grows_linearly_with_the_sequence) {
  for (const int64_t length : {2048, 4096}) {
    const AttentionSpec once = spec_of(1, length, 4, 2, 64),
                        twice = spec_of(1, 2 * length, 4, 2, 64);
    EXPECT_LT(AttentionForward(twice, 2).scratch_bytes(),
              2.1 * static_cast<double>(AttentionForward(once, 2).scratch_bytes()));
    EXPECT_LT(AttentionBackward(twice, 2).scratch_bytes(),
              2.1 * static_cast<double>(AttentionBackward(once, 2).scratch_bytes()));
  }
}

TEST(attention, impossible_shapes_are_refused) {
  EXPECT_THROW(AttentionForward(spec_of(1, 4, 3, 2, 8), 1), Error);
  EXPECT_THROW(AttentionForward(spec_of(1, 0, 2, 2, 8), 1), Error);
  AttentionSpec spec = spec_of(1, 4, 2, 2, 8);
  spec.dtype = Dtype::fp16;
  EXPECT_THROW(AttentionBackward(spec, 1), Error);
}

// Blocks of keys that no query of a block sees are not read: what is in them changes no bit.
TEST(attention, a_window_reads_no_block_of_keys_before_it) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    AttentionSpec spec = spec_of(1, 600, 2, 1, 16);
    spec.window = 4;
    spec.dtype = dtype;
    Problem clean(spec), dirty(spec);
    for (int64_t i = 0; i < 64 * 16; ++i) dirty.k.set(i, NAN), dirty.v.set(i, NAN);
    for (Problem* p : {&clean, &dirty}) p->forward(2);
    const auto same = [](const Buffer& a, const Buffer& b, int64_t first) {
      for (int64_t i = first; i < a.size(); ++i) {
        if (!(a.at(i) == b.at(i))) return false;
      }
      return true;
    };
    EXPECT_TRUE(same(clean.o, dirty.o, 300 * 32));
    EXPECT_FALSE(same(clean.o, dirty.o, 0));
    for (int64_t i = 0; i < clean.o.size(); ++i) dirty.o.set(i, clean.o.at(i));
    for (int64_t i = 0; i < clean.lse.size(); ++i) dirty.lse.set(i, clean.lse.at(i));
    for (Problem* p : {&clean, &dirty}) p->backward(2);
    EXPECT_TRUE(same(clean.dq, dirty.dq, 300 * 32));
  }
}

}  // namespace
}  // namespace octet::cpu
