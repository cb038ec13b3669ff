// How long ranks wait for one another before one of them counts as lost.
#pragma once

#include <chrono>

namespace octet {

struct RankTimes {
  std::chrono::milliseconds patience{300'000};  // at the start, for all to come
  std::chrono::milliseconds silence{15'000};    // for a sign of life
  std::chrono::milliseconds stuck{120'000};     // for devices of which none gets on
};

}  // namespace octet
