// Which rank is behind, where devices of ranks that wait for each other do not get on.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace octet {

class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit ProgressWatch(std::chrono::milliseconds limit) : limit_(limit) {}

  // Asked again and again while a rank waits for its device, with what each rank has last said of
  // its own: the rank that has done least, once nothing has changed for the limit.
  std::optional<int> behind(std::vector<int64_t> progress, Clock::time_point now = Clock::now()) {
    constexpr std::chrono::seconds kOtherWait{5};
    if (now - asked_ > kOtherWait || progress != last_) changed_ = now;
    asked_ = now;
    last_ = std::move(progress);
    if (now - changed_ < limit_) return std::nullopt;
    return static_cast<int>(std::ranges::min_element(last_) - last_.begin());
  }
  std::string text() const {
    const bool is_one = std::ranges::count(last_, std::ranges::min(last_)) < std::ssize(last_);
    return fmt::format("{} for {:g} s",
                       is_one ? "its device has not got on, and others wait for it,"
                              : "no rank's device has got on",
                       static_cast<double>(limit_.count()) / 1000);
  }

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point asked_, changed_;
  std::vector<int64_t> last_;
};

}  // namespace octet
