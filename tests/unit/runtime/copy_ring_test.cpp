#include "runtime/copy_ring.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/philox.h"
#include "unit/train/host_device.h"

namespace octet::runtime_copy_ring_test {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> noise(size_t n, uint64_t seed) {
  const RandomStream random{.name = name_hash("ring"), .seed = static_cast<uint32_t>(seed)};
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(random.bits(i));
  return bytes;
}

std::vector<CopyRing::Source> sources_of(const std::vector<std::vector<std::byte>>& tensors) {
  std::vector<CopyRing::Source> sources;
  for (const auto& tensor : tensors) sources.push_back({tensor.data(), std::ssize(tensor)});
  return sources;
}

std::vector<std::byte> take_all(CopyRing& ring, size_t index) {
  std::vector<std::byte> bytes;
  ring.take(index, [&](auto piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
  return bytes;
}

class CopyRings : public testing::TestWithParam<int64_t> {
 protected:
  std::vector<std::vector<std::byte>> tensors() {
    std::vector<std::vector<std::byte>> all;
    for (const size_t n : {5000u, 0u, 4096u, 4097u, 1u, 70001u, 12288u, 3u, 9000u})
      all.push_back(noise(n, n));
    return all;
  }
  test::HostDevice device_;
};

// Rings of any size: smaller than a tensor, than all of them, or as large.
TEST_P(CopyRings, hand_out_every_byte_in_order_pass_after_pass) {
  CopyRing ring(device_, GetParam());
  for (int pass = 0; pass < 3; ++pass) {
    const auto all = tensors();
    ring.begin(sources_of(all));
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(take_all(ring, i), all[i]) << i;
    EXPECT_TRUE(ring.is_copied());
  }
}

INSTANTIATE_TEST_SUITE_P(bytes, CopyRings, testing::Values(1, 4096, 5000, 65536, 1 << 20));

TEST_F(CopyRings, that_hold_everything_have_copied_when_the_first_is_taken) {
  const auto all = tensors();
  CopyRing ring(device_, CopyRing::bytes_for(sources_of(all)));
  ring.begin(sources_of(all));
  EXPECT_FALSE(ring.is_copied());
  take_all(ring, 0);
  EXPECT_TRUE(ring.is_copied());
}

// Nothing of a tensor that is overwritten after wait_copied() is in what is taken later.
TEST_F(CopyRings, let_the_other_thread_wait_until_it_may_overwrite) {
  auto all = tensors();
  const auto before = all;
  CopyRing ring(device_, 8192);
  ring.begin(sources_of(all));
  for (auto& small : all)
    if (std::ssize(small) <= CopyRing::kSmall) std::ranges::fill(small, std::byte{1});
  std::vector<std::vector<std::byte>> taken(all.size());
  std::thread taker([&] {
    for (size_t i = 0; i < taken.size(); ++i) {
      std::this_thread::sleep_for(2ms);
      taken[i] = take_all(ring, i);
    }
    ring.end();
  });
  ring.wait_copied();
  for (auto& tensor : all) std::ranges::fill(tensor, std::byte{2});
  taker.join();
  EXPECT_EQ(taken, before);
}

TEST_F(CopyRings, that_end_early_keep_nobody_waiting) {
  const auto all = tensors();
  CopyRing ring(device_, 4096);
  ring.begin(sources_of(all));
  std::thread taker([&] {
    EXPECT_THROW(ring.take(0, [](auto) { throw std::runtime_error("full"); }), std::runtime_error);
    ring.end();
  });
  ring.wait_copied();
  taker.join();
  // And serve the next pass.
  ring.begin(sources_of(all));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(take_all(ring, i), all[i]) << i;
}

}  // namespace
}  // namespace octet::runtime_copy_ring_test
