#include "backends/cpu/attention/gated_delta.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

// Operands and results of both directions, of texts one behind the other.
struct DeltaProblem {
  GatedDeltaShape shape;
  int64_t tokens, keys, values;
  std::vector<int32_t> doc_starts;
  Buffer q, k, v, log_decay, beta, dout, state;
  Buffer o, next_state, dq, dk, dv, dlog_decay, dbeta;

  DeltaProblem(const GatedDeltaShape& s, Dtype dtype)
      : shape(s),
        tokens(s.batch * s.seq),
        keys(s.key_heads * s.key_dim),
        values(s.heads * s.value_dim),
        q(dtype, tokens * keys),
        k(dtype, tokens * keys),
        v(dtype, tokens * values),
        log_decay(dtype, tokens * s.heads),
        beta(dtype, tokens * s.heads),
        dout(dtype, tokens * values),
        state(Dtype::f32, s.batch * s.heads * s.key_dim * s.value_dim),
        o(dtype, v.size()),
        next_state(Dtype::f32, state.size()),
        dq(dtype, q.size()),
        dk(dtype, k.size()),
        dv(dtype, v.size()),
        dlog_decay(dtype, beta.size()),
        dbeta(dtype, beta.size()) {
    q.randomize(1), k.randomize(2), v.randomize(3), dout.randomize(4), state.randomize(5);
    log_decay.randomize(6), beta.randomize(7, 0.5);
    for (int64_t i = 0; i < log_decay.size(); ++i)
      log_decay.set(i, -0.3f * static_cast<float>(std::abs(log_decay.at(i))));
  }

  GatedDeltaCall call() const {
    return {.q = q.in(),
            .k = k.in(),
            .v = v.in(),
            .log_decay = log_decay.in(),
            .beta = beta.in(),
            .doc_starts = doc_starts.empty() ? nullptr : doc_starts.data()};
  }
  void forward(int n_threads, bool has_state) {
    ThreadPool pool(n_threads);
    Scratch scratch(static_cast<size_t>(gated_delta_floats(shape, n_threads)) * sizeof(float));
    GatedDeltaCall forward = call();
    if (has_state) forward.state = state.in(), forward.next_state = next_state.out();
    forward.o = o.out();
    forward.scratch = static_cast<float*>(scratch.get());
    gated_delta(shape, forward, pool);
  }
  void backward(int n_threads) {
    ThreadPool pool(n_threads);
    Scratch scratch(static_cast<size_t>(gated_delta_grad_floats(shape, n_threads)) * sizeof(float));
    GatedDeltaGradCall gradient{.forward = call(),
                                .dout = dout.in(),
                                .dq = dq.out(),
                                .dk = dk.out(),
                                .dv = dv.out(),
                                .dlog_decay = dlog_decay.out(),
                                .dbeta = dbeta.out()};
    gradient.forward.scratch = static_cast<float*>(scratch.get());
    gated_delta_gradient(shape, gradient, pool);
  }
  std::vector<Buffer*> per_token() {
    return {&q, &k, &v, &log_decay, &beta, &dout, &o, &dq, &dk, &dv, &dlog_decay, &dbeta};
  }

  // The tokens [first, first + n) of a single text, as one of their own.
  DeltaProblem part(int64_t first, int64_t n) {
    GatedDeltaShape of = shape;
    of.seq = n;
    DeltaProblem alone(of, q.dtype());
    const std::vector<Buffer*> from = per_token(), to = alone.per_token();
    for (size_t i = 0; i < 6; ++i) {
      const int64_t each = from[i]->size() / tokens;
      for (int64_t j = 0; j < n * each; ++j)
        to[i]->set(j, static_cast<float>(from[i]->at(first * each + j)));
    }
    return alone;
  }
  // The results from number `begin` on of a part have the bits that its tokens have here.
  void expect_results_of(DeltaProblem& alone, int64_t first, size_t begin, size_t end) {
    const std::vector<Buffer*> whole = per_token(), part = alone.per_token();
    for (size_t i = begin; i < end; ++i) {
      const int64_t each = whole[i]->size() / tokens;
      for (int64_t j = 0; j < part[i]->size(); ++j)
        ASSERT_EQ(part[i]->at(j), whole[i]->at(first * each + j)) << i << " " << first << " " << j;
    }
  }
};

constexpr GatedDeltaShape kShape{
    .batch = 2, .seq = 75, .key_heads = 2, .heads = 4, .key_dim = 20, .value_dim = 36};

TEST(GatedDelta, has_the_same_bits_on_every_target_for_any_number_of_threads) {
  for (const Dtype dtype : kStorage) {
    std::optional<DeltaProblem> first;
    for_each_target([&](const std::string& target) {
      if (!target.starts_with("AVX")) return;  // products are not fused there, and it is not taken
      for (const int n_threads : {1, 3, 8}) {
        DeltaProblem p(kShape, dtype);
        p.forward(n_threads, true);
        p.backward(n_threads);
        if (!first) first.emplace(p);
        EXPECT_EQ(p.next_state, first->next_state) << target;
        const std::vector<Buffer*> got = p.per_token(), wanted = first->per_token();
        for (size_t i = 6; i < got.size(); ++i) {
          EXPECT_TRUE(got[i]->guards_intact());
          EXPECT_EQ(*got[i], *wanted[i]) << target << " " << n_threads << " result " << i;
        }
      }
    });
  }
}

TEST(GatedDelta, gives_documents_the_bits_that_they_have_alone) {
  GatedDeltaShape shape = kShape;
  shape.batch = 1;
  DeltaProblem p(shape, Dtype::f32);
  constexpr int64_t kBegins[] = {0, 7, 8, 73, 75};
  for (size_t d = 0; d + 1 < std::size(kBegins); ++d)
    p.doc_starts.resize(static_cast<size_t>(kBegins[d + 1]), static_cast<int32_t>(kBegins[d]));
  p.forward(2, false);
  p.backward(2);
  for (size_t d = 0; d + 1 < std::size(kBegins); ++d) {
    DeltaProblem alone = p.part(kBegins[d], kBegins[d + 1] - kBegins[d]);
    alone.forward(1, false);
    alone.backward(1);
    p.expect_results_of(alone, kBegins[d], 6, 12);
  }
}

TEST(GatedDelta, goes_on_from_the_state_behind_a_chunk_with_the_bits_of_the_whole_text) {
  GatedDeltaShape shape = kShape;
  shape.batch = 1;
  DeltaProblem p(shape, Dtype::f32);
  p.forward(2, true);
  DeltaProblem before = p.part(0, 64), behind = p.part(64, 11);
  before.state = p.state;
  before.forward(1, true);
  behind.state = before.next_state;
  behind.forward(1, true);
  p.expect_results_of(before, 0, 6, 7);
  p.expect_results_of(behind, 64, 6, 7);
  EXPECT_EQ(behind.next_state, p.next_state);
}

}  // namespace
}  // namespace octet::cpu
