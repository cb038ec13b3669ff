#include "plan/offsets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace octet::plan_offsets_test {
namespace {

Buffer buffer(int64_t bytes, int first, int last) {
  return {.name = {}, .bytes = bytes, .first_step = first, .last_step = last};
}

std::vector<int> all_of(const std::vector<Buffer>& buffers) {
  std::vector<int> which(buffers.size());
  std::iota(which.begin(), which.end(), 0);
  return which;
}

TEST(Offsets, buffers_that_never_meet_share_bytes) {
  std::vector<Buffer> buffers = {buffer(1000, 0, 1), buffer(1000, 2, 3)};
  EXPECT_EQ(assign_offsets(buffers, all_of(buffers)), 1024);
  EXPECT_EQ(buffers[0].offset, buffers[1].offset);
}

TEST(Offsets, buffers_that_meet_at_one_step_lie_apart) {
  std::vector<Buffer> buffers = {buffer(1000, 0, 2), buffer(500, 2, 3)};
  EXPECT_EQ(assign_offsets(buffers, all_of(buffers)), 1024 + 512);
  EXPECT_EQ(buffers[1].offset, 1024);
}

TEST(Offsets, a_small_buffer_takes_the_lowest_gap_that_fits) {
  // The large one above leaves a gap below while the second is dead.
  std::vector<Buffer> buffers = {buffer(4096, 0, 9), buffer(2048, 0, 3), buffer(1024, 3, 9),
                                 buffer(512, 5, 6)};
  EXPECT_EQ(assign_offsets(buffers, all_of(buffers)), 4096 + 2048 + 1024);
  EXPECT_EQ(buffers[2].offset, 4096 + 2048);
  EXPECT_EQ(buffers[3].offset, 4096);
}

TEST(Offsets, empty_buffers_take_nothing) {
  std::vector<Buffer> buffers = {buffer(0, 0, 5), buffer(256, 0, 5)};
  EXPECT_EQ(assign_offsets(buffers, all_of(buffers)), 256);
}

TEST(Offsets, others_stay_where_they_are) {
  std::vector<Buffer> buffers = {buffer(256, 0, 5), buffer(256, 0, 5)};
  buffers[0].offset = 7;
  assign_offsets(buffers, {1});
  EXPECT_EQ(buffers[0].offset, 7);
  EXPECT_EQ(buffers[1].offset, 0);
}

// Largest first, each at the lowest gap between those that live with it: by looking at all of them.
std::vector<int64_t> first_fit(const std::vector<Buffer>& buffers) {
  std::vector<int> order = all_of(buffers);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return buffers[static_cast<size_t>(a)].bytes > buffers[static_cast<size_t>(b)].bytes;
  });
  std::vector<int64_t> offsets(buffers.size(), 0);
  std::vector<int> placed;
  for (const int index : order) {
    const Buffer& b = buffers[static_cast<size_t>(index)];
    int64_t& offset = offsets[static_cast<size_t>(index)];
    for (bool moved = true; moved;) {
      moved = false;
      for (const int other : placed) {
        const Buffer& o = buffers[static_cast<size_t>(other)];
        const int64_t begin = offsets[static_cast<size_t>(other)], end = begin + align_up(o.bytes);
        const bool meet = b.first_step <= o.last_step && o.first_step <= b.last_step;
        if (!meet || offset + align_up(b.bytes) <= begin || end <= offset) continue;
        offset = end;
        moved = true;
      }
    }
    placed.push_back(index);
  }
  return offsets;
}

TEST(Offsets, random_buffers_lie_where_first_fit_puts_them) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<Buffer> buffers;
    const int n_steps = 1 + static_cast<int>(random() % 70);
    for (int i = 0; i < 50; ++i) {
      const int first = static_cast<int>(random() % static_cast<unsigned>(n_steps)) - 1;
      const int lives = static_cast<int>(random() % static_cast<unsigned>(n_steps));
      buffers.push_back(buffer(static_cast<int64_t>(random() % 6) * 300, first, first + lives));
    }
    const std::vector<int64_t> expected = first_fit(buffers);
    assign_offsets(buffers, all_of(buffers));
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (buffers[i].bytes > 0) {
        EXPECT_EQ(buffers[i].offset, expected[i]) << round << " " << i;
      }
    }
  }
}

TEST(Offsets, random_buffers_never_overlap_and_waste_little) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random() % 40);
      buffers.push_back(buffer(1 + static_cast<int64_t>(random() % 20000), first,
                               first + static_cast<int>(random() % 12)));
    }
    const int64_t arena = assign_offsets(buffers, all_of(buffers));
    int64_t most_live = 0;
    for (int step = 0; step < 52; ++step) {
      int64_t live = 0;
      for (const Buffer& b : buffers)
        live += b.first_step <= step && step <= b.last_step ? align_up(b.bytes) : 0;
      most_live = std::max(most_live, live);
    }
    for (size_t a = 0; a < buffers.size(); ++a) {
      EXPECT_LE(buffers[a].offset + buffers[a].bytes, arena);
      for (size_t b = 0; b < a; ++b) {
        const Buffer &x = buffers[a], &y = buffers[b];
        const bool meet = x.first_step <= y.last_step && y.first_step <= x.last_step;
        const bool overlap = x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
        EXPECT_FALSE(meet && overlap);
      }
    }
    EXPECT_GE(arena, most_live);
    EXPECT_LE(static_cast<double>(arena), 1.3 * static_cast<double>(most_live));
  }
}

}  // namespace
}  // namespace octet::plan_offsets_test
