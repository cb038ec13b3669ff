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
    AttentionArgs args{q.data(), k.data(), v.data(), o.data(), lse.f32()};
    args.scratch = scratch.get();
    kernel.launch(args, pool);
  }
  void backward(int n_threads) {
    ThreadPool pool(n_threads);
    const AttentionBackward kernel(spec, n_threads);
    Scratch scratch(kernel.scratch_bytes());
    const AttentionBackwardArgs args{.q = q.data(),
                                     .k = k.data(),
                                     .v = v.data(),
                                     .o = o.data(),
                                     .dout = dout.data(),
                                     .lse = lse.f32(),
                                     .dq = dq.data(),
                                     .dk = dk.data(),
                                     .dv = dv.data(),
                                     .scratch = scratch.get()};
    kernel.launch(args, pool);
  }
};

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
