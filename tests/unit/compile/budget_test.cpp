#include "compile/budget.h"

#include <gtest/gtest.h>

#include "unit/base/error_of.h"
#include "unit/compile/small_program.h"

namespace octet {
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
  const ProgramOptions fitted = fit_to_budget(options_of(4), kCatalogue);
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
  EXPECT_FALSE(fit_to_budget(options, kCatalogue).recompute.has_value());
  options.memory_budget = none - 1;
  EXPECT_EQ(fit_to_budget(options, kCatalogue).recompute, Recompute::cheap);
  options.memory_budget = full;
  EXPECT_EQ(fit_to_budget(options, kCatalogue).recompute, Recompute::full);
}

TEST(Budget, what_the_run_chose_is_kept) {
  ProgramOptions options = options_of(8);
  options.recompute = Recompute::none;
  options.memory_budget = planned(options, Recompute::cheap);
  EXPECT_NE(test::error_of([&] { fit_to_budget(options, kCatalogue); }), "no error");
}

TEST(Budget, the_error_names_roles_and_the_largest_batch_that_fits) {
  ProgramOptions options = options_of(8), smaller = options;
  smaller.train.batch = 5;
  options.memory_budget = planned(smaller, Recompute::full);
  const std::string error = test::error_of([&] { fit_to_budget(options, kCatalogue); });
  EXPECT_EQ(error.rfind(fmt::format("[budget] expected at most {} bytes (train.memory_budget), got "
                                    "{} at least (",
                                    options.memory_budget, planned(options, Recompute::full)),
                        0),
            0u)
      << error;
  EXPECT_NE(error.find("activations "), std::string::npos) << error;
  EXPECT_NE(error.find("; train.batch 5 fits"), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
  options.memory_budget = 1000;
  const std::string hopeless = test::error_of([&] { fit_to_budget(options, kCatalogue); });
  EXPECT_NE(hopeless.find("no train.batch fits"), std::string::npos) << hopeless;
}

}  // namespace
}  // namespace octet
