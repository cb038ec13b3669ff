// The fast kernels under the thread sanitizer: small shapes, more threads than tiles and fewer, run
// twice on one pool.
#include "backends/cpu/adamw/adamw_groups.h"
#include "backends/cpu/attention/attention.h"
#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/elementwise/reduce.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/loss/cross_entropy.h"
#include "backends/cpu/loss/embedding.h"
#include "backends/cpu/norm/norm.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

constexpr int kThreads[] = {1, 3, 8};

// Runs `fn` twice with each number of threads; all must leave the same bits in the buffer it
// returns.
template <typename Fn>
void expect_same_bits(Fn&& fn) {
  ThreadPool one(1);
  const Buffer want = fn(one);
  for (const int n : kThreads) {
    ThreadPool pool(n);
    for (int round = 0; round < 2; ++round) EXPECT_TRUE(fn(pool) == want) << n << " threads";
  }
}

TEST(kernels, gemm_tiles_do_not_race) {
  for (const Dtype d : kStorage) {
    expect_same_bits([&](ThreadPool& pool) {
      Buffer a(d, 70 * 140), b(d, 70 * 130), c(d, 140 * 130);
      a.randomize(1);
      b.randomize(2);
      const Gemm gemm({140, 130, 70, d, d, d, Transpose::yes, Transpose::no}, pool.n_threads());
      Scratch scratch(gemm.scratch_bytes());
      GemmArgs args{a.data(), b.data(), c.data()};
      args.scratch = scratch.get();
      gemm.launch(args, pool);
      return c;
    });
  }
}

TEST(kernels, attention_tiles_do_not_race) {
  AttentionSpec spec;
  spec.batch = 2;
  spec.q_len = spec.kv_len = 70;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_size = 8;
  spec.dtype = Dtype::bf16;
  expect_same_bits([&](ThreadPool& pool) {
    const int64_t q_elems = 140 * 32, k_elems = 140 * 16;
    Buffer q(spec.dtype, q_elems), k(spec.dtype, k_elems), v(spec.dtype, k_elems);
    Buffer dout(spec.dtype, q_elems), o(spec.dtype, q_elems), lse(Dtype::f32, 140 * 4);
    Buffer dq(spec.dtype, q_elems), dk(spec.dtype, k_elems), dv(spec.dtype, k_elems);
    q.randomize(1);
    k.randomize(2);
    v.randomize(3);
    dout.randomize(4);
    const AttentionForward forward(spec, pool.n_threads());
    Scratch scratch(forward.scratch_bytes());
    AttentionArgs args{.q = q.data(),
                       .k = k.data(),
                       .v = v.data(),
                       .o = o.data(),
                       .lse = lse.f32(),
                       .scratch = scratch.get()};
    forward.launch(args, pool);
    const AttentionBackward backward(spec, pool.n_threads());
    Scratch more(backward.scratch_bytes());
    backward.launch({.q = q.data(),
                     .k = k.data(),
                     .v = v.data(),
                     .o = o.data(),
                     .dout = dout.data(),
                     .lse = lse.f32(),
                     .dq = dq.data(),
                     .dk = dk.data(),
                     .dv = dv.data(),
                     .scratch = more.get()},
                    pool);
    return dk;
  });
}

TEST(kernels, sums_over_rows_do_not_race) {
  expect_same_bits([&](ThreadPool& pool) {
    const RowShape shape{200, 19};
    Buffer x(Dtype::f32, 200 * 19), dy(Dtype::f32, 200 * 19), dx(Dtype::f32, 200 * 19);
    Buffer rstd(Dtype::f32, 200), dw(Dtype::f32, 19);
    x.randomize(1);
    dy.randomize(2);
    std::vector<float> scratch(static_cast<size_t>(norm_backward_scratch(shape, 1)));
    norm({.x = x.in(), .y = dx.out(), .rstd = rstd.f32()}, shape, pool);
    norm_backward({.x = x.in(),
                   .dy = dy.in(),
                   .rstd = rstd.f32(),
                   .dx = dx.out(),
                   .dw = dw.out(),
                   .scratch = scratch.data()},
                  shape, pool);
    return dw;
  });
}

TEST(kernels, scattered_gradients_do_not_race) {
  expect_same_bits([&](ThreadPool& pool) {
    const EmbeddingShape shape{50, 40, 9};
    Buffer dy(Dtype::bf16, 50 * 9), dtable(Dtype::f32, 40 * 9);
    dy.randomize(1);
    std::vector<int32_t> ids, scratch(static_cast<size_t>(embedding_backward_scratch(shape)));
    for (int t = 0; t < 50; ++t) ids.push_back(t * 11 % 7);
    embedding_backward({dy.in(), ids.data(), dtable.out(), scratch.data()}, shape, pool);
    return dtable;
  });
}

TEST(kernels, whole_tensor_sums_and_updates_do_not_race) {
  expect_same_bits([&](ThreadPool& pool) {
    const int64_t n = 3 * kBlockElems + 5;
    Buffer g(Dtype::bf16, n), w(Dtype::f32, n), m(Dtype::f32, n), v(Dtype::f32, n);
    g.randomize(1);
    w.randomize(2);
    fill(m.out(), 0.0f, n, pool);
    fill(v.out(), 0.0f, n, pool);
    std::vector<double> scratch(static_cast<size_t>(reduce_scratch(n)));
    AdamwConstants k{0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 0, 0, 1, 1, 1};
    k.lr = static_cast<float>(1 / sum_of_squares(g.in(), n, scratch.data(), pool).value);
    adamw_groups({.grad = g.in(),
                  .weight_from = w.in(),
                  .weight_to = w.out(),
                  .m = {{}, m.data(), m.data()},
                  .v = {{.moment = Moment::second}, v.data(), v.data()}},
                 k, n, pool);
    return w;
  });
}

}  // namespace
}  // namespace octet::cpu
