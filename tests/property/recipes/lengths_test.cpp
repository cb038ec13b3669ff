// Training steps of several sequence lengths in one program.
#include <gtest/gtest.h>

#include <algorithm>

#include "property/recipes/tiny_training.h"

namespace octet::recipes_lengths_test {
namespace {

// Rows of at most `n` tokens, padded to `seq`.
Batch padded(const Batch& from, int64_t n, int64_t seq) {
  Batch to = empty_batch(from.batch, seq);
  for (int64_t row = 0; row < from.batch; ++row) {
    for (const char* name : {"tokens", "labels"})
      std::copy_n(from.ints(name).begin() + row * from.seq, n, to.ints(name).begin() + row * seq);
  }
  return to;
}

struct Steps {
  std::vector<float> losses, norms;
  int64_t bytes = 0;
};

// Steps of rows of at most 8, 16 and 32 tokens; lengths to pad them to.
Steps run(ProgramOptions options, const std::vector<int64_t>& shorter) {
  options.train = {.batch = 4, .seq = 32};
  options.shorter = shorter;
  TrainEngine engine(options, *tiny::backend().device, *tiny::backend().catalogue);
  tiny::start(engine);
  Steps result;
  for (uint32_t step = 0; step < 6; ++step) {
    const int64_t n = int64_t{8} << step % 3;
    int64_t seq = 32;
    for (const int64_t length : shorter) {
      if (length >= n) seq = std::min(seq, length);
    }
    std::vector<Batch> parts;
    for (int i = 0; i < options.accumulate; ++i)
      parts.push_back(padded(tiny::batch({4, 32}, step * 2 + static_cast<uint64_t>(i)), n, seq));
    const StepOutcome outcome = engine.step(parts, tiny::scalars(step));
    result.losses.push_back(outcome.loss);
    result.norms.push_back(outcome.grad_norm);
  }
  result.bytes = engine.planned_bytes();
  return result;
}

// Values of a row's tokens are the same; sums over rows may take padding, which adds zeros, in
// another order.
TEST(Lengths, padding_changes_no_loss) {
  for (const int accumulate : {1, 2}) {
    ProgramOptions options = tiny::options("fp32");
    options.accumulate = accumulate;
    const Steps whole = run(options, {}), bucketed = run(options, {8, 16});
    EXPECT_EQ(bucketed.losses[0], whole.losses[0]);
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(bucketed.losses[i], whole.losses[i], 2e-6f * whole.losses[i]);
      EXPECT_NEAR(bucketed.norms[i], whole.norms[i], 1e-5f * whole.norms[i]);
    }
    EXPECT_LT(whole.losses.back(), whole.losses.front());
  }
}

TEST(Lengths, take_no_more_memory_than_the_longest) {
  for (const std::string_view recipe : {"fp32", "bf16", "coat", "coat-fast", "scalify_fp16"}) {
    const ProgramOptions options = tiny::options(recipe);
    EXPECT_EQ(run(options, {8, 16}).bytes, run(options, {}).bytes) << recipe;
  }
}

// States in scaled FP16 have scales that a length predicts: they must be those of one length.
TEST(Lengths, share_states_of_every_format) {
  for (const char* format : {"f32", "e4m3+x", "fp16_sr"}) {
    ProgramOptions options = tiny::options("fp32");
    options.optim.state_m = options.optim.state_v = run_state_format_from_name(format);
    options.optim.f32_below = 0;
    const Steps whole = run(options, {}), bucketed = run(options, {8, 16});
    for (size_t i = 0; i < whole.losses.size(); ++i)
      EXPECT_NEAR(bucketed.losses[i], whole.losses[i], 1e-3f) << format << " " << i;
  }
}

}  // namespace
}  // namespace octet::recipes_lengths_test
