// The items of an epoch, windows or documents, where some of the data is read more often than once.
//
// A part of n items and weight w gives round(w n) items an epoch, at least one. Epoch after epoch
// they go on through the part, and begin anew once all were read, in another order where the order
// is shuffled: so with weight 0.5 two epochs read each item once. All weights 1: each item once.
// A function of the parts, the order and the epoch alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/token_stream.h"

namespace octet {

struct MixtureOptions {
  bool shuffles = true;
  uint64_t seed = 0;
};

class Mixture {
 public:
  // n items in all, to which the ends of the parts rise. No parts: one of weight 1.
  Mixture(int64_t n, std::span<const StreamPart> parts, const MixtureOptions& options);

  int64_t n_items() const { return n_; }  // of an epoch
  int64_t item(uint64_t epoch, int64_t i) const;

 private:
  struct Part {
    int64_t first, n;    // items
    int64_t begin, end;  // of an epoch
  };
  int64_t n_ = 0;
  std::vector<Part> parts_;  // empty: all are read once
  MixtureOptions options_;
};

// "2, 0.5", of a loader's state; empty where all are 1.
std::string weights_text(std::span<const StreamPart> parts);

}  // namespace octet
