// One row of `octet bench`: a figure with what it is measured against, all from the same run.
#pragma once

#include <string>

namespace octet {

struct BenchRow {
  std::string name;      // what ran: "encode e4m3"
  std::string shape;     // on what: "8192 f32"
  double value = 0;      // the figure
  std::string unit;      // of value: "GB/s of f32"
  std::string baseline;  // what the ratio is against; empty: nothing
  double ratio = 0;      // value / baseline, larger is better; 0: none
  double floor = 0;      // the least that value must be; 0: none
  double share = 0;      // of the machine's ceiling in this run; 0: not known
  std::string isa;       // what ran it
  int threads = 1;
};

}  // namespace octet
