// Any row of any recipe may be taken away: every run is planned by the others, and trains alike.
#include <gtest/gtest.h>

#include "backends/cuda/backend.h"
#include "passes/precision/recipe.h"
#include "property/recipes/tiny_training.h"
#include "property/rows/take_away.h"

namespace octet::rows_take_away_test {
namespace {

TEST(AnyRow, of_every_recipe_may_be_taken_away) {
  for (const Recipe* recipe : all_recipes()) {
    const ProgramOptions options = tiny::options(recipe->name);
    const rows::Counts gpu =
        rows::take_each_away(options, [] { return cuda::make_plan_backend({.n_threads = 1}); });
    EXPECT_GE(gpu.planned, 4) << recipe->name;
    const rows::Counts cpu =
        rows::take_each_away(options, [] { return cpu::make_backend(1, cpu::detect_isa()); });
    EXPECT_EQ(cpu.refused, 0) << recipe->name;
  }
}

// Sums are rounded elsewhere where another kernel adds, so losses are near and not the same bits.
constexpr float kRelative = 0.02f;

TEST(AnyRow, that_is_taken_away_leaves_losses_alike) {
  if (cpu::detect_isa() == cpu::Isa::scalar) GTEST_SKIP() << "the reference is all there is";
  for (const char* recipe : {"bf16", "coat"}) {
    const ProgramOptions options = tiny::options(recipe);
    const std::vector<float> expected = tiny::losses(options, 3);
    for (const KernelRow* row : rows::rows_of(options, *tiny::backend().catalogue)) {
      const Backend backend = cpu::make_backend(2, cpu::detect_isa());
      backend.catalogue->strike(row_key(*row));
      const auto found =
          tiny::losses_on({*backend.device, *backend.catalogue}, options, 3, tiny::spec());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], kRelative * expected[i])
            << recipe << ", " << row_key(*row);
    }
  }
}

}  // namespace
}  // namespace octet::rows_take_away_test
