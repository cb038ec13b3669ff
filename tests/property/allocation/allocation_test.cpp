// Planned is allocated: steps allocate nothing large, and the process stays within the plan.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

#include <array>
#include <cstdio>

#include "base/host_memory.h"
#include "property/allocation/counting_allocator.h"
#include "property/recipes/tiny_training.h"

namespace octet::allocation_test {
namespace {

constexpr int kSteps = 3;

struct Measured {
  int64_t planned = 0, peak = 0, n_large = 0;
  bool finite = false;
};

ModelSpec model_of(const Recipe& recipe) {
  // The reference kernels that fp16 runs on are slow: for it the process stays small.
  const bool is_slow = recipe.compute == Dtype::fp16;
  return resolved({.hidden = is_slow ? 32 : 512,
                   .layers = is_slow ? 2 : 4,
                   .heads = is_slow ? 2 : 8,
                   .ffn = is_slow ? 64 : 1408,
                   .vocab = is_slow ? 64 : 4096});
}

Measured train(const Recipe& recipe, int accumulate) {
  const ModelSpec model = model_of(recipe);
  ProgramOptions options = tiny::options(recipe.name, model);
  options.train = {.batch = 2, .seq = model.hidden / 2};
  options.accumulate = accumulate;
  cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa());
  TrainEngine engine(options, *backend.device, *backend.catalogue);
  tiny::start(engine, model);
  const std::vector<Batch> batches(static_cast<size_t>(accumulate),
                                   tiny::batch(options.train, 0, model.vocab));
  Measured result{.planned = engine.planned_bytes()};
  float loss = 0;
  for (uint32_t step = 0; step < kSteps; ++step) {
    if (step == 1) counting::begin();
    loss = engine.step(batches, tiny::scalars(step, 1e-4f)).loss;
  }
  result.n_large = counting::end();
  result.peak = peak_resident_bytes();
  result.finite = std::isfinite(loss);
  return result;
}

// In a process of its own, whose memory is this run's alone.
Measured train_apart(const Recipe& recipe, int accumulate) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    Measured result;
    try {
      result = train(recipe, accumulate);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    const bool written = write(ends[1], &result, sizeof(result)) == sizeof(result);
    _exit(written ? 0 : 1);
  }
  Measured result;
  close(ends[1]);
  EXPECT_EQ(read(ends[0], &result, sizeof(result)), static_cast<ssize_t>(sizeof(result)));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return result;
}

class Allocation : public testing::TestWithParam<std::pair<const Recipe*, int>> {};

TEST_P(Allocation, is_the_plan) {
  const auto& [recipe, accumulate] = GetParam();
  const Measured run = train_apart(*recipe, accumulate);
  constexpr double kSlack = 1.03;
  constexpr int64_t kProgram = int64_t{48} << 20;
  EXPECT_TRUE(run.finite);
  EXPECT_EQ(run.n_large, 0);
  EXPECT_GT(run.peak, run.planned / 2);
  EXPECT_LE(static_cast<double>(run.peak),
            kSlack * static_cast<double>(run.planned) + static_cast<double>(kProgram))
      << "planned " << run.planned;
  RecordProperty("planned_bytes", std::to_string(run.planned));
  RecordProperty("peak_bytes", std::to_string(run.peak));
}

std::vector<std::pair<const Recipe*, int>> cases() {
  std::vector<std::pair<const Recipe*, int>> list;
  for (const Recipe* recipe : all_recipes()) list.emplace_back(recipe, 1);
  list.emplace_back(&find_recipe("coat"), 2);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Recipes, Allocation, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = fmt::format("{}_{}", info.param.first->name, info.param.second);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(CountingAllocator, sees_large_allocations_only) {
  counting::begin();
  std::vector<char> small(counting::kLarge / 2);
  std::vector<char> large(counting::kLarge * 2);
  small[0] = large[0] = 1;
  EXPECT_EQ(counting::end(), 1);
  EXPECT_EQ(small[0], large[0]);
}

}  // namespace
}  // namespace octet::allocation_test
