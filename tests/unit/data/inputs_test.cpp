#include "data/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/rows.h"

namespace octet::data_inputs_test {
namespace {

using testing::ElementsAre;

const InputSpec kTargets = {
    .name = "targets", .per = Per::row, .type = HostType::real, .fill = Fill::ignored};

TEST(Batch, counts_numbers_that_are_not_nan) {
  Batch batch{.batch = 4, .seq = 1};
  EXPECT_EQ(batch.add(kTargets).values.index(), 1u);
  EXPECT_EQ(batch.n_items("targets"), 0);
  batch.reals("targets") = {0.0f, -1.0f, NAN, 2.0f};
  EXPECT_EQ(batch.n_items("targets"), 3);
  EXPECT_THAT(batch.counts("targets"), ElementsAre(true, true, false, true));
}

TEST(Batch, a_row_that_fills_up_has_neither_label_nor_number) {
  Batch batch{.batch = 4, .seq = 2, .rows_per_sample = 2};
  batch.set(row_label_input("labels"), std::vector<int32_t>{3, 1, 0, 2});
  batch.set(kTargets, std::vector<float>{1, 2, 3, 4});
  for (const int64_t row : {2, 3}) mask_row(batch, row);
  EXPECT_THAT(batch.ints("labels"), ElementsAre(3, 1, kIgnoredLabel, kIgnoredLabel));
  EXPECT_EQ(batch.n_items("targets"), 2);
  EXPECT_EQ(batch.n_items("samples"), 1);
}

// An array a token under any name is enough: a model's captions.
TEST(Complete, positions_stand_beside_tokens_of_another_name) {
  Batch batch{.batch = 2, .seq = 3};
  batch.add({.name = "captions"});
  complete(batch, "positions");
  EXPECT_EQ(std::as_const(batch).ints("positions"), (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  Batch images{.batch = 2, .seq = 1};
  images.add({.name = "frames", .per = Per::row, .inner = {4}, .type = HostType::real});
  complete(images, "positions");
  EXPECT_EQ(images.find("positions"), nullptr);
}

}  // namespace
}  // namespace octet::data_inputs_test
