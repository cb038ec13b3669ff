// When a plain line of progress is due, where no terminal shows a bar.
#pragma once

#include "train/stopwatch.h"

namespace octet {

// After the first step of a process, at the distance that train.log_every sets, and besides where
// steps are so slow that nothing was said for half a minute.
class LineClock {
 public:
  bool is_due(bool at_distance) {
    constexpr double kLongestSilence = 30;  // seconds
    if (!at_distance && !is_first_ && since_line_.seconds() < kLongestSilence) return false;
    is_first_ = false;
    since_line_ = {};
    return true;
  }

 private:
  Stopwatch since_line_;
  bool is_first_ = true;
};

}  // namespace octet
