// Cosines and sines of rotary position embedding, made once for all nodes with the same
// frequencies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "ir/attrs.h"

namespace octet::cpu {

struct RopeTable {
  std::vector<double> frequencies;
  std::vector<float> cos, sin;  // [max_positions, head_dim / 2], computed in double, rounded once
};

class RopeTables {
 public:
  // The table for positions below max_positions; shared with every earlier caller that asked for
  // the same.
  std::shared_ptr<const RopeTable> get(const RopeAttrs& attrs, int64_t max_positions);

 private:
  std::map<std::pair<std::vector<double>, int64_t>, std::shared_ptr<const RopeTable>> tables_;
};

}  // namespace octet::cpu
