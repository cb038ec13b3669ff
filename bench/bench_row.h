// One row of `octet bench`: a figure with what it is measured against, all from the same run.
#pragma once

#include <string>
#include <vector>

namespace octet {

struct BenchRow {
  std::string name;      // what ran: "encode e4m3"
  std::string shape;     // on what: "8192 f32"
  double value = 0;      // the figure
  std::string unit;      // of value: "GB/s of f32"
  std::string baseline;  // what the ratio is against; empty: nothing
  double ratio = 0;      // how many times as fast (or as small) as the baseline; 0: none
  // In value's unit: of a time, the least that the ceilings of this run allow; of a rate, the least
  // that is asked for, or what the ceilings give where the row says so; 0: none.
  double floor = 0;
  double share = 0;  // of the machine's ceiling in this run; 0: not known
  std::string isa;   // what ran it
  int threads = 1;
};

using BenchRows = std::vector<BenchRow>;

}  // namespace octet
