#include "runtime/copy_ring.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "unit/train/host_device.h"

namespace octet::runtime_staging_test {
namespace {

constexpr int64_t kPiece = 64;
constexpr int64_t kSizes[] = {0, 1, 63, 64, 65, 128, 1000};

std::vector<std::byte> numbered(int64_t n) {
  std::vector<std::byte> bytes(static_cast<size_t>(n));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251 + 1);
  return bytes;
}

TEST(Staging, hands_out_every_byte_in_order) {
  test::HostDevice device;
  Staging staging(device, kPiece);
  for (const int64_t n : kSizes) {
    const std::vector<std::byte> want = numbered(n);
    std::vector<std::byte> got;
    staging.copy_out(want.data(), n, [&](std::span<const std::byte> piece) {
      EXPECT_LE(std::ssize(piece), kPiece);
      got.insert(got.end(), piece.begin(), piece.end());
    });
    EXPECT_EQ(got, want) << n;
  }
}

TEST(Staging, fills_every_byte_at_its_place) {
  test::HostDevice device;
  Staging staging(device, kPiece);
  for (const int64_t n : kSizes) {
    const std::vector<std::byte> want = numbered(n);
    std::vector<std::byte> got(static_cast<size_t>(n) + 1, std::byte{0xEE});
    staging.copy_in(got.data(), n, [&](int64_t first, std::span<std::byte> piece) {
      std::copy_n(want.begin() + first, piece.size(), piece.begin());
    });
    EXPECT_EQ(got.back(), std::byte{0xEE}) << n;
    got.pop_back();
    EXPECT_EQ(got, want) << n;
  }
}

// Fails its second copy.
class FailingDevice : public test::HostDevice {
 public:
  void copy_in(std::byte* to, const void* from, int64_t bytes) override {
    count();
    HostDevice::copy_in(to, from, bytes);
  }
  void copy_out(void* to, const std::byte* from, int64_t bytes) override {
    count();
    HostDevice::copy_out(to, from, bytes);
  }

 private:
  void count() {
    if (++n_copies_ == 2) throw std::runtime_error("device fault");
  }
  int n_copies_ = 0;
};

TEST(Staging, passes_on_what_the_device_or_the_stream_throws) {
  const std::vector<std::byte> from = numbered(1000);
  std::vector<std::byte> to(1000);
  const auto ignore = [](std::span<const std::byte>) {};
  const auto full_disk = [](std::span<const std::byte>) { throw std::length_error("full"); };
  FailingDevice failing, also_failing;
  test::HostDevice device;
  EXPECT_THROW(Staging(failing, kPiece).copy_out(from.data(), 1000, ignore), std::runtime_error);
  EXPECT_THROW(
      Staging(also_failing, kPiece).copy_in(to.data(), 1000, [](int64_t, std::span<std::byte>) {}),
      std::runtime_error);
  EXPECT_THROW(Staging(device, kPiece).copy_out(from.data(), 1000, full_disk), std::length_error);
  EXPECT_THROW(Staging(device, kPiece)
                   .copy_in(to.data(), 1000,
                            [](int64_t first, std::span<std::byte>) {
                              if (first > 500) throw std::length_error("torn");
                            }),
               std::length_error);
}

}  // namespace
}  // namespace octet::runtime_staging_test
