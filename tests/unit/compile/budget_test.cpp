#include "compile/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/units.h"
#include "ir/print.h"
#include "passes/lower/chunk_head.h"
#include "unit/base/error_of.h"
#include "unit/compile/small_program.h"

namespace octet::compile_budget_test {
namespace {

using test::NamedCatalogue;
using test::small_options;

const NamedCatalogue kCatalogue;

int64_t planned(ProgramOptions options, std::optional<Recompute> recompute) {
  options.recompute = recompute;
  return Program(options, kCatalogue).planned_bytes();
}

ProgramOptions options_of(int layers) {
  return small_options("bf16", {.layers = layers});
}

TEST(Budget, without_one_nothing_changes) {
  const ProgramOptions fitted = fit_to_budget(options_of(4), kCatalogue)->options();
  EXPECT_FALSE(fitted.recompute.has_value());
  EXPECT_EQ(fitted.head_chunk_bytes, 0);
}

TEST(Budget, recompute_is_chosen_from_cheap_to_full) {
  ProgramOptions options = options_of(8);
  const int64_t none = planned(options, Recompute::none),
                cheap = planned(options, Recompute::cheap);
  const int64_t full = planned(options, Recompute::full);
  ASSERT_LT(cheap, none);
  ASSERT_LT(full, cheap);
  options.memory_budget = none;
  EXPECT_FALSE(fit_to_budget(options, kCatalogue)->options().recompute.has_value());
  options.memory_budget = none - 1;
  EXPECT_EQ(fit_to_budget(options, kCatalogue)->options().recompute, Recompute::cheap);
  options.memory_budget = full;
  EXPECT_EQ(fit_to_budget(options, kCatalogue)->options().recompute, Recompute::full);
}

// A layer that is not computed again saves its time.
TEST(Budget, layers_are_computed_again_until_it_fits) {
  ProgramOptions options = options_of(8), fixed = options;
  fixed.recompute = Recompute::full;
  fixed.head_chunk_bytes = ChunkHeadOptions{}.chunk_bytes;
  for (const int n_layers : {3, 6, 8}) {
    fixed.recompute_layers = n_layers;
    options.memory_budget = Program(fixed, kCatalogue).planned_bytes();
    const ProgramOptions fitted = fit_to_budget(options, kCatalogue)->options();
    if (fitted.recompute != Recompute::full) continue;  // cheap does for the first
    EXPECT_EQ(fitted.recompute_layers, n_layers);
    EXPECT_LE(Program(fitted, kCatalogue).planned_bytes(), options.memory_budget);
  }
}

// A function that is compiled asks for kernels of its one loss, always equally often.
class CountingCatalogue : public NamedCatalogue {
 public:
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    if (node.op == OpCode::cross_entropy) ++n_compiled;
    return NamedCatalogue::choose(graph, node);
  }
  mutable int64_t n_compiled = 0;
};

TEST(Budget, the_program_that_fits_is_not_compiled_again) {
  ProgramOptions options = options_of(8), all = options;
  all.recompute = Recompute::full;
  all.head_chunk_bytes = ChunkHeadOptions{}.chunk_bytes;
  all.recompute_layers = 8;
  const CountingCatalogue once;
  Program alone(all, once);
  options.memory_budget = alone.planned_bytes();
  ASSERT_GT(once.n_compiled, 0);
  const CountingCatalogue counting;
  const auto fitted = fit_to_budget(options, counting);
  ASSERT_EQ(fitted->options().recompute_layers, 8);
  // None, cheap, cheap with the head in chunks, full; and of 4, 6 and 7 layers.
  const int64_t n_tried = 7;
  EXPECT_EQ(counting.n_compiled, n_tried * once.n_compiled);
  EXPECT_EQ(fitted->planned_bytes(), options.memory_budget);
  for (const FunctionKey& key : fitted->train_keys()) {
    EXPECT_EQ(print(fitted->plan(key).graph), print(alone.plan(key).graph));
  }
  EXPECT_EQ(counting.n_compiled, n_tried * once.n_compiled);
}

TEST(Budget, without_one_nothing_is_compiled_to_find_it) {
  const CountingCatalogue counting;
  fit_to_budget(options_of(4), counting);
  EXPECT_EQ(counting.n_compiled, 0);
}

TEST(Budget, what_the_run_chose_is_kept) {
  ProgramOptions options = options_of(8);
  options.recompute = Recompute::none;
  options.memory_budget = planned(options, Recompute::cheap);
  EXPECT_NE(test::error_of([&] { fit_to_budget(options, kCatalogue); }), "no error");
}

std::string bytes(int64_t n_bytes) {
  return bytes_text(static_cast<double>(n_bytes));
}

TEST(Budget, the_error_names_roles_and_the_largest_batch_that_fits) {
  ProgramOptions options = options_of(8), smaller = options;
  smaller.train.batch = 5;
  options.memory_budget = planned(smaller, Recompute::full);
  const std::string error = test::error_of([&] { fit_to_budget(options, kCatalogue); });
  const std::string expected =
      fmt::format("[memory] expected at most {} (train.memory_budget), got a plan of {}\n",
                  bytes(options.memory_budget), bytes(planned(options, Recompute::full)));
  EXPECT_EQ(error.rfind(expected, 0), 0u) << error;
  EXPECT_NE(error.find("\n  most of it: activations "), std::string::npos) << error;
  EXPECT_NE(
      error.find(fmt::format("\n  what fits: train.batch=5 ({})", bytes(options.memory_budget))),
      std::string::npos)
      << error;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 2) << error;
  options.memory_budget = 1000;
  const std::string hopeless = test::error_of([&] { fit_to_budget(options, kCatalogue); });
  EXPECT_TRUE(
      hopeless.ends_with("\n  no setting that was tried fits: take a smaller model.seq or "
                         "model"))
      << hopeless;
}

std::string error_on_a_device(const ProgramOptions& options, int64_t bytes) {
  Program program(options, kCatalogue);
  return test::error_of([&] { expect_fits(program, kCatalogue, {bytes, "available here"}); });
}

TEST(DeviceMemory, a_plan_that_fits_is_no_error) {
  const ProgramOptions options = options_of(8);
  const int64_t bytes = planned(options, std::nullopt);
  EXPECT_EQ(error_on_a_device(options, bytes), "no error");
  EXPECT_NE(error_on_a_device(options, bytes - 1), "no error");
}

TEST(DeviceMemory, nothing_is_tried_where_nothing_is_left) {
  const std::string error = error_on_a_device(options_of(8), 0);
  EXPECT_TRUE(error.ends_with("no setting that was tried fits: take a smaller model.seq or model"))
      << error;
}

// Each setting of the last line, planned as it is written: all fit, and take what it says.
struct NamedChange {
  std::string keys;
  std::function<void(ProgramOptions&)> apply;
};

const NamedChange kChanges[] = {
    {"train.memory_budget=",
     [](ProgramOptions& o) {
       o.recompute = Recompute::full;
       o.head_chunk_bytes = ChunkHeadOptions{}.chunk_bytes;
     }},
    {"optim.state_m=e4m3+x",
     [](ProgramOptions& o) {
       o.optim.state_m = o.optim.state_v = state_format_from_name("e4m3+x");
     }},
    {"optim.master=bf16_sr", [](ProgramOptions& o) { o.optim.master = Master::bf16_sr; }},
    {"optim.clip=0", [](ProgramOptions& o) { o.optim.clipping = Clipping::none; }},
};

// Settings of the line "  what fits: A; B".
std::vector<std::string> settings_of(const std::string& error) {
  const std::string mark = "\n  what fits: ";
  std::vector<std::string> settings;
  const size_t begin = error.find(mark);
  if (begin == error.npos) return settings;
  for (std::string rest = error.substr(begin + mark.size()); !rest.empty();) {
    const size_t end = std::min(rest.find("; "), rest.size());
    settings.push_back(rest.substr(0, end));
    rest.erase(0, std::min(end + 2, rest.size()));
  }
  return settings;
}

ProgramOptions with_setting(ProgramOptions options, const std::string& text) {
  for (const NamedChange& change : kChanges) {
    if (text.find(change.keys) != text.npos) change.apply(options);
  }
  if (text.starts_with("train.batch=")) options.train.batch = std::stoi(text.substr(12));
  return options;
}

TEST(DeviceMemory, only_settings_that_fit_are_named_with_what_they_take) {
  const ProgramOptions options = options_of(8);
  const int64_t all = planned(options, std::nullopt);
  size_t n_named = 0;
  for (int part = 1; part < 10; ++part) {
    const int64_t room = all * part / 10;
    const std::string error = error_on_a_device(options, room);
    for (const std::string& setting : settings_of(error)) {
      const ProgramOptions changed = with_setting(options, setting);
      const int64_t takes = planned(changed, changed.recompute);
      EXPECT_LE(takes, room) << setting;
      EXPECT_TRUE(setting.ends_with(fmt::format(" ({})", bytes(takes)))) << setting;
      ++n_named;
    }
    EXPECT_LE(settings_of(error).size(), 3u) << error;
  }
  EXPECT_GE(n_named, 5u);
}

// The fewest settings together, where one alone is not enough.
TEST(DeviceMemory, settings_that_fit_together_are_named_together) {
  ProgramOptions options = options_of(8);
  options.train.batch = 1;
  ProgramOptions both = with_setting(options, "train.memory_budget= optim.state_m=e4m3+x");
  const int64_t room = planned(both, both.recompute) + 2048;  // a budget is rounded down
  const std::vector<std::string> settings = settings_of(error_on_a_device(options, room));
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_TRUE(settings[0].starts_with("train.memory_budget=")) << settings[0];
  EXPECT_NE(settings[0].find(" optim.state_m=e4m3+x"), std::string::npos) << settings[0];
}

// The batch named is the largest: it fits, and one more sequence does not.
TEST(DeviceMemory, the_batch_that_it_names_is_the_largest_that_fits) {
  ProgramOptions options = options_of(8);
  for (const int64_t batch : {1, 3, 7}) {
    ProgramOptions smaller = options;
    smaller.train.batch = batch;
    const int64_t room = planned(smaller, std::nullopt);
    const std::string error = error_on_a_device(options, room);
    EXPECT_NE(error.find(fmt::format("  what fits: train.batch={} ({})", batch, bytes(room))),
              std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace octet::compile_budget_test
