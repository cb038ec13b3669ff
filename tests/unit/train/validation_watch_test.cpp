#include "train/validation_watch.h"

#include <gtest/gtest.h>

#include <limits>

#include "unit/base/error_of.h"

namespace octet::train_validation_watch_test {
namespace {

TEST(ValidationWatch, knows_the_lowest_loss_and_how_long_ago_it_was) {
  ValidationWatch watch;
  EXPECT_EQ(watch.best_step(), 0);
  EXPECT_TRUE(watch.add(10, 2.0));
  EXPECT_FALSE(watch.add(20, 2.0));  // as low is not lower
  EXPECT_FALSE(watch.add(30, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(watch.n_since_best(), 2);
  EXPECT_FALSE(watch.add(30, 1.0));  // counted already
  EXPECT_TRUE(watch.add(40, 1.5));
  EXPECT_EQ(watch.best_step(), 40);
  EXPECT_EQ(watch.n_since_best(), 0);
}

TEST(ValidationWatch, goes_on_from_what_it_wrote) {
  ValidationWatch watch;
  watch.add(10, 0.1);
  watch.add(20, 0.2);
  KeyValues extra;
  watch.write(extra);
  ValidationWatch again;
  again.read(extra, "m.json");
  EXPECT_EQ(again.best_loss(), 0.1);
  EXPECT_EQ(again.best_step(), 10);
  EXPECT_EQ(again.n_since_best(), 1);
  EXPECT_FALSE(again.add(20, 0.05));
  EXPECT_TRUE(again.add(30, 0.05));
  again.read({}, "m.json");  // an older checkpoint
  EXPECT_EQ(again.best_step(), 30);
}

TEST(ValidationWatch, what_it_never_wrote_is_refused) {
  ValidationWatch watch;
  KeyValues extra;
  watch.write(extra);
  for (const char* bad : {"", "-1", "1x", "99999999999999999999"}) {
    KeyValues broken = extra;
    broken["best_step"] = bad;
    EXPECT_NE(test::error_of([&] { watch.read(broken, "m.json"); }).find("m.json"),
              std::string::npos)
        << bad;
  }
}

}  // namespace
}  // namespace octet::train_validation_watch_test
