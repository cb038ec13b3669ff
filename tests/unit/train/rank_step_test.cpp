#include "train/rank_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "comm/local.h"
#include "unit/base/error_of.h"

namespace octet::train_rank_step_test {
namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// Step that rank 0 of three learns, each rank telling what `of_rank` says.
CommonStep gathered(const std::function<RankStep(int rank)>& of_rank) {
  auto groups = local_groups(3);
  CommonStep result;
  run_local_ranks(groups, [&](Group& group) {
    const CommonStep step = gather_step(&group, of_rank(group.rank()));
    if (group.rank() == 0) result = step;
  });
  return result;
}

RankStep good(int rank) {
  const auto r = static_cast<float>(rank);
  return {.losses = {1 + r, 10 + r}, .grad_norm = 2, .attempt = 7, .rows = 100u + unsigned(rank)};
}

TEST(RankStep, adds_losses_in_the_order_of_micro_batches) {
  EXPECT_EQ(gathered(good).loss, 1 + 2 + 3 + 10 + 11 + 12);
  EXPECT_FALSE(gathered(good).equal_losses);
  EXPECT_EQ(gather_step(nullptr, good(1)).loss, 2 + 11);
}

TEST(RankStep, names_the_rank_that_has_another_norm_flag_or_attempt) {
  const auto error = [](const std::function<void(RankStep&)>& change) {
    return test::error_of([&] {
      gathered([&](int rank) {
        RankStep step = good(rank);
        if (rank == 1) change(step);
        return step;
      });
    });
  };
  EXPECT_THAT(error([](RankStep& step) { step.grad_norm = 2.5f; }),
              testing::EndsWith("[ranks] expected gradient norm 2 of attempt 7 on every rank, got "
                                "others: rank 1 has gradient norm 2.5 of attempt 7"));
  EXPECT_THAT(error([](RankStep& step) { step.nonfinite = true; }),
              testing::HasSubstr("rank 1 has gradient norm 2, not finite, of attempt 7"));
  EXPECT_THAT(error([](RankStep& step) { step.attempt = 8; }),
              testing::HasSubstr("rank 1 has gradient norm 2 of attempt 8"));
  EXPECT_THAT(error([](RankStep& step) { step.skipped_tensors = {"w"}; }),
              testing::HasSubstr("rank 1 has gradient norm 2 of attempt 7, refusing tensors "));
}

TEST(RankStep, takes_one_nan_for_another) {
  const CommonStep step = gathered([](int rank) {
    RankStep own = good(rank);
    own.grad_norm = rank == 1 ? -kNoNumber : kNoNumber;
    own.nonfinite = true;
    return own;
  });
  EXPECT_EQ(step.loss, 39);
}

TEST(RankStep, tells_equal_losses_of_rows_that_differ) {
  const auto with = [](float loss, bool have_same_rows) {
    return gathered([=](int rank) {
             RankStep own = good(rank);
             own.losses = {loss, 2};
             if (have_same_rows || rank < 2) own.rows = 1;
             return own;
           })
        .equal_losses;
  };
  EXPECT_TRUE(with(1, false));
  EXPECT_FALSE(with(1, true));
  EXPECT_FALSE(with(kNoNumber, false));
}

TEST(RankStep, hashes_tokens_labels_and_starts) {
  const Batch rows = text_batch(1, 2, {1, 2}, {2, 3});
  Batch other = rows;
  other.ints("labels")[1] = kIgnoredLabel;
  EXPECT_EQ(hash_of_rows(0, rows), hash_of_rows(0, rows));
  EXPECT_NE(hash_of_rows(0, rows), hash_of_rows(0, other));
  EXPECT_NE(hash_of_rows(0, rows), hash_of_rows(1, rows));
}

}  // namespace
}  // namespace octet::train_rank_step_test
