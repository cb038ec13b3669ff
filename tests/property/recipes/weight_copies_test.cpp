// Copies of weights in codes that are kept from one update to the next: the same bits as codes made
// where they are used, counted by role, and made anew from the parameters after a resume.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "data/row_plan.h"
#include "plan/report.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_weight_copies_test {
namespace {

std::vector<uint32_t> loss_bits(const std::vector<float>& losses) {
  std::vector<uint32_t> bits;
  for (const float loss : losses) bits.push_back(std::bit_cast<uint32_t>(loss));
  return bits;
}

ProgramOptions with_copies(ProgramOptions options, WeightCopy copy) {
  options.recipe_options.weight_copy = copy;
  return options;
}

// 0, 1, 2, ...
class Counting : public TokenSource {
 public:
  int64_t n_tokens() const override { return 200; }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> starts) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>((first + static_cast<int64_t>(i)) % 48);
      starts[i] = 0;
    }
  }
  uint64_t identity() const override { return 1; }
};

class WeightCopies : public testing::TestWithParam<const char*> {};

TEST_P(WeightCopies, change_no_bit_of_the_loss) {
  for (const ModelKind kind : {ModelKind::llama, ModelKind::gpt2}) {
    const ModelSpec spec = tiny::spec(kind);
    for (const int accumulate : {1, 2}) {
      ProgramOptions options = tiny::options(GetParam(), spec);
      options.accumulate = accumulate;
      const auto losses = [&](WeightCopy copy) {
        return loss_bits(tiny::losses(with_copies(options, copy), 5, spec));
      };
      const auto expected = losses(WeightCopy::per_use);
      EXPECT_EQ(losses(WeightCopy::scale), expected) << accumulate;
      EXPECT_EQ(losses(WeightCopy::per_step), expected) << accumulate;
      EXPECT_EQ(losses(WeightCopy::w_only), expected) << accumulate;
    }
  }
}

// These kernels read codes that lie either way: there is one layout.
TEST_P(WeightCopies, are_one_byte_a_weight) {
  const int64_t linears = 2 * (4 * 32 * 32 + 3 * 32 * 64);  // of two layers
  for (const auto& [copy, layouts] :
       {std::pair(WeightCopy::per_use, 0), std::pair(WeightCopy::scale, 0),
        std::pair(WeightCopy::per_step, 1), std::pair(WeightCopy::w_only, 1)}) {
    Program program(with_copies(tiny::options(GetParam()), copy), *tiny::backend().catalogue);
    const Plan& step = program.plan(function::step);
    int64_t n_bytes = 0;
    for (const Buffer& buffer : step.buffers) {
      const bool codes = buffer.role == MemoryRole::weight_copies && buffer.dtype != Dtype::f32;
      n_bytes += codes ? buffer.bytes : 0;
    }
    EXPECT_EQ(n_bytes, layouts * linears);
    EXPECT_EQ(program.has_derived(), copy != WeightCopy::per_use);
    EXPECT_EQ(step.near_misses, std::vector<std::string>{});
  }
}

TEST_P(WeightCopies, evaluate_to_the_same_bits) {
  std::vector<uint32_t> found;
  for (const WeightCopy copy :
       {WeightCopy::per_use, WeightCopy::scale, WeightCopy::per_step, WeightCopy::w_only}) {
    ProgramOptions options = with_copies(tiny::options(GetParam()), copy);
    TrainEngine engine(options, *tiny::backend().device, *tiny::backend().catalogue);
    tiny::start(engine);
    const SampleEval windows(TokenStream({std::make_shared<Counting>()}), {.seq = 16}, 101);
    const auto before = static_cast<float>(engine.evaluate(windows).metrics[0].sum.mean());
    const Batch batch = tiny::batch(options.train, 0);
    engine.step({&batch, 1}, tiny::scalars(0));
    const auto after = static_cast<float>(engine.evaluate(windows).metrics[0].sum.mean());
    EXPECT_NE(before, after);
    found.push_back(std::bit_cast<uint32_t>(before));
    found.push_back(std::bit_cast<uint32_t>(after));
  }
  for (size_t i = 2; i < found.size(); ++i) EXPECT_EQ(found[i], found[i % 2]);
}

INSTANTIATE_TEST_SUITE_P(EightBit, WeightCopies, testing::Values("fp8_linear", "coat", "hif8"),
                         [](const auto& info) { return std::string(info.param); });

// Content of a checkpoint: parameters and states.
void copy_state(TrainEngine& from, TrainEngine& to) {
  for (const auto& [name, slot] : from.layout().slots) {
    if (slot.kind != InputKind::parameter && slot.kind != InputKind::state) continue;
    const auto& other = to.layout().slots.at(name);
    std::memcpy(to.arenas().arena(other.arena) + other.offset,
                from.arenas().arena(slot.arena) + slot.offset,
                static_cast<size_t>(slot.type.n_bytes()));
  }
}

TEST(CoatFast, resumes_bit_for_bit_with_each_gradient_format) {
  for (const Dtype dy : {Dtype::e5m2, Dtype::e4m3}) {
    ProgramOptions options = tiny::options("coat-fast");
    options.optim.state_m = options.optim.state_v = state_format_from_name("e4m3+x");
    if (dy == Dtype::e4m3)
      options.recipe_options.overrides = {{.pattern = "*", .dy = operand_format(dy, true)}};
    const auto expected = loss_bits(tiny::losses(options, 6));
    TrainEngine first(options, *tiny::backend().device, *tiny::backend().catalogue);
    TrainEngine second(options, *tiny::backend().device, *tiny::backend().catalogue);
    tiny::start(first);
    tiny::start(second);
    for (uint32_t step = 0; step < 6; ++step) {
      if (step == 3) {
        copy_state(first, second);
        second.prepare_state();
      }
      const Batch batch = tiny::batch(options.train, step);
      TrainEngine& engine = step < 3 ? first : second;
      const float loss = engine.step({&batch, 1}, tiny::scalars(step)).loss;
      EXPECT_EQ(std::bit_cast<uint32_t>(loss), expected[step]) << step;
    }
  }
}

TEST(CoatFast, differs_from_coat_by_its_scales_alone) {
  ProgramOptions coat = tiny::options("coat"), fast = tiny::options("coat-fast");
  EXPECT_NE(loss_bits(tiny::losses(coat, 4)), loss_bits(tiny::losses(fast, 4)));
  fast.recipe_options.scaling = Scaling::current;
  EXPECT_EQ(loss_bits(tiny::losses(coat, 4)), loss_bits(tiny::losses(fast, 4)));
  coat.recipe_options.scaling = Scaling::delayed;
  fast.recipe_options.scaling = Scaling::delayed;
  EXPECT_EQ(loss_bits(tiny::losses(coat, 4)), loss_bits(tiny::losses(fast, 4)));
}

}  // namespace
}  // namespace octet::recipes_weight_copies_test
