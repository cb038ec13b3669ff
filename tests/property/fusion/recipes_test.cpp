// Whole training steps of tiny models under bf16 and the recipes of eight bits: on the fast
// kernels they give the loss of the reference kernels, and no node is left to a reference kernel.
#include <fmt/format.h>

#include "base/philox.h"
#include "infer/model_spec.h"
#include "run.h"
#include "train/engine.h"
#include "train/weights.h"

namespace octet::fusion {
namespace {

constexpr const char* kRecipes[] = {"bf16", "fp8_linear", "coat", "coat-fast", "hif8"};
// Tokens of a step: a multiple of 16, and two that are not.
constexpr BatchSize kSizes[] = {
    {.batch = 2, .seq = 16}, {.batch = 1, .seq = 13}, {.batch = 3, .seq = 7}};

ModelSpec tiny_llama() {
  return resolved({.kind = ModelKind::llama,
                   .hidden = 64,
                   .layers = 2,
                   .heads = 4,
                   .kv_heads = 2,
                   .ffn = 176,
                   .vocab = 96});
}

std::vector<ModelSpec> tiny_models() {
  ModelSpec olmo = tiny_llama(), gpt2 = tiny_llama();
  olmo.kind = ModelKind::olmo;
  gpt2.kind = ModelKind::gpt2;
  gpt2.kv_heads = gpt2.heads;
  gpt2.tied = true;
  return {tiny_llama(), resolved(olmo), resolved(gpt2)};
}

ProgramOptions options_of(const std::string& recipe, BatchSize size, Scaling scaling,
                          const ModelSpec& spec) {
  ProgramOptions options;
  options.forward = forward_builder(spec);
  options.recipe = recipe;
  options.recipe_options.scaling = scaling;
  options.train = size;
  return options;
}

Batch batch_of(BatchSize size, int step) {
  std::vector<int32_t> tokens, labels;
  const RandomStream random{0xBA7C4, static_cast<uint32_t>(step), 0, 0};
  for (int64_t i = 0; i < size.batch * size.seq; ++i) {
    tokens.push_back(static_cast<int32_t>(random.bits(static_cast<uint64_t>(i)) % 96));
    labels.push_back(i % 5 == 3 ? -1 : (tokens.back() * 7 + 1) % 96);
  }
  return text_batch(size.batch, size.seq, std::move(tokens), std::move(labels));
}

struct Losses {
  std::vector<double> loss, grad_norm;
};

Losses train(const ProgramOptions& options, cpu::Backend& backend, const ModelSpec& spec) {
  constexpr int kSteps = 3;
  TrainEngine engine(options, *backend.device, *backend.catalogue);
  poison(engine.arenas());
  write_weights(engine.arenas(), engine.layout(), model_parameters(spec),
                [](const ParameterSpec& p) { return initial_values(p, 3); });
  Losses result;
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = batch_of(options.train, step);
    StepScalars scalars;
    scalars.lr = 1e-3f;
    scalars.applied = step + 1;
    scalars.clip = 1;
    const StepOutcome outcome = engine.step({&batch, 1}, scalars);
    EXPECT_FALSE(outcome.nonfinite) << options.recipe << " step " << step;
    result.loss.push_back(static_cast<double>(outcome.loss));
    result.grad_norm.push_back(static_cast<double>(outcome.grad_norm));
  }
  return result;
}

class recipes : public testing::TestWithParam<const char*> {};

// Two sets of kernels round at different places in bf16, and an eight-bit code may fall on the
// other side: on a loss of ln 96 = 4.6 nats the recipe bf16, which is run beside the others, shows
// 3e-4 at the first step too. Adam makes steps of lr from gradients of any size, so that at lr 1e-2
// two runs part within three steps, bf16's as well (2e-2); at 1e-3 they stay together.
constexpr double kLossTolerance = 5e-3;
constexpr double kNormTolerance = 2e-2;  // relative

void expect_alike(const ProgramOptions& options, const ModelSpec& spec) {
  const Losses fast = train(options, fast_backend(), spec);
  const Losses slow = train(options, scalar_backend(), spec);
  for (size_t i = 0; i < fast.loss.size(); ++i) {
    const std::string what = fmt::format("{} {} {}x{} step {}", model_def(spec.kind).name,
                                         options.recipe, options.train.batch, options.train.seq, i);
    EXPECT_NEAR(fast.loss[i], slow.loss[i], kLossTolerance) << what;
    EXPECT_NEAR(fast.grad_norm[i] / slow.grad_norm[i], 1, kNormTolerance) << what;
  }
  EXPECT_NE(fast.loss[0], fast.loss[2]);
}

TEST_P(recipes, fast_and_reference_kernels_train_alike) {
  for (const ModelSpec& spec : tiny_models()) {
    for (const BatchSize& size : kSizes) {
      for (const Scaling scaling : {Scaling::current, Scaling::delayed}) {
        expect_alike(options_of(GetParam(), size, scaling, spec), spec);
      }
    }
  }
}

void expect_fast_kernels(const ProgramOptions& options, const std::string& what) {
  Program program(options, *fast_backend().catalogue);
  std::vector<std::string_view> functions = program.train_functions();
  functions.push_back(function::evaluate);
  functions.push_back(function::logits);
  for (const std::string_view name : functions) {
    EXPECT_EQ(reference_nodes(program.plan(name)), "")
        << what << " " << name << " " << options.train.batch << "x" << options.train.seq;
  }
}

TEST_P(recipes, no_node_runs_on_a_reference_kernel) {
  for (const ModelSpec& spec : tiny_models()) {
    for (const BatchSize& size : kSizes) {
      for (const Scaling scaling : {Scaling::current, Scaling::delayed}) {
        for (const int accumulate : {1, 2}) {
          ProgramOptions options = options_of(GetParam(), size, scaling, spec);
          options.accumulate = accumulate;
          expect_fast_kernels(options, fmt::format("{} {}", model_def(spec.kind).name, GetParam()));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(tiny_models, recipes, testing::ValuesIn(kRecipes), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace octet::fusion
