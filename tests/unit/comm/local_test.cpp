// Ranks as threads: what collectives move, and what happens when one fails.
#include "comm/local.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "base/error.h"
#include "unit/base/error_of.h"

namespace octet::comm_local_test {
namespace {

std::byte* bytes(std::vector<int>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

class LocalGroups : public testing::TestWithParam<int> {
 protected:
  int n() const { return GetParam(); }
  void run(const std::function<void(Group&)>& body) {
    auto groups = local_groups(n());
    run_local_ranks(groups, body);
  }
};

TEST_P(LocalGroups, collectives_move_what_they_say) {
  run([&](Group& group) {
    for (int round = 0; round < 50; ++round) {
      const int rank = group.rank();
      std::vector<int> own = {rank * 10 + round, -rank};
      std::vector<int> all(static_cast<size_t>(2 * n())), sent(static_cast<size_t>(n())),
          got = sent;
      group.all_gather(bytes(own), bytes(all), 2 * sizeof(int));
      for (int r = 0; r < n(); ++r) {
        EXPECT_EQ(all[static_cast<size_t>(2 * r)], r * 10 + round);
        EXPECT_EQ(all[static_cast<size_t>(2 * r + 1)], -r);
      }
      std::iota(sent.begin(), sent.end(), rank * 100);
      group.all_to_all(bytes(sent), bytes(got), sizeof(int));
      for (int r = 0; r < n(); ++r) EXPECT_EQ(got[static_cast<size_t>(r)], r * 100 + rank);
      const int root = round % n();
      std::vector<int> shared = {rank == root ? round : -1};
      group.broadcast(bytes(shared), sizeof(int), root);
      EXPECT_EQ(shared[0], round);
      group.all_gather(nullptr, nullptr, 0);
    }
  });
}

TEST_P(LocalGroups, an_error_of_one_ends_all_and_is_the_one_that_is_thrown) {
  const int bad = n() - 1;
  std::atomic<int> n_ended = 0;
  const std::string error = test::error_of([&] {
    run([&](Group& group) {
      std::vector<int> own = {1}, all(static_cast<size_t>(n()));
      if (group.rank() == bad) {
        group.all_gather(bytes(own), bytes(all), sizeof(int));
        throw Error(ErrorCode::io, "[disk] full");
      }
      try {
        while (true) group.all_gather(bytes(own), bytes(all), sizeof(int));
      } catch (const Error& thrown) {
        EXPECT_EQ(thrown.what(), fmt::format("[ranks] rank {} ended: [disk] full", bad));
        ++n_ended;
        throw;
      }
    });
  });
  EXPECT_EQ(error, bad == 0 ? "[disk] full" : fmt::format("[rank {}] [disk] full", bad));
  EXPECT_EQ(n_ended, n() - 1);
}

INSTANTIATE_TEST_SUITE_P(sizes, LocalGroups, testing::Values(1, 2, 3, 7));

TEST(LocalGroup, ranks_that_call_different_collectives_are_told) {
  auto groups = local_groups(2);
  const std::string error = test::error_of([&] {
    run_local_ranks(groups, [](Group& group) {
      std::vector<int> own(2), all(4);
      if (group.rank() == 0) return group.all_gather(bytes(own), bytes(all), 8);
      group.all_gather(bytes(own), bytes(all), 4);
    });
  });
  EXPECT_NE(error.find("ended: it called all_gather of "), std::string::npos) << error;
  EXPECT_NE(error.find(" of 8"), std::string::npos) << error;
  EXPECT_NE(error.find(" of 4"), std::string::npos) << error;
}

}  // namespace
}  // namespace octet::comm_local_test
