// What a plan of one rank sends to the others, and how much of it computing hides: an estimate from
// the plan alone, which needs no device.
//
// The plan's two streams are simulated (plan/streams.h). A step takes the longer of flops / rate
// and bytes / bandwidth. What is still under way when the plan ends counts as waited for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace octet {

// Rates that kernels reach on one NVIDIA H200 (docs/results), and its link's by the data sheet.
struct MachineRates {
  double flops_wide = 700e12;     // per second; GEMMs of BF16
  double flops_narrow = 1250e12;  // of 8 bits
  double bytes = 4.0e12;          // per second; memory
  double link = 450e9;            // per second and direction; between ranks
  double step = 2e-6;             // seconds that any step takes at least
};

struct Transfer {
  std::string what;    // "reduce_scatter of layer 3, q_proj"
  int64_t bytes = 0;   // sent by this rank, and received by it
  double seconds = 0;  // on the link
  double slack = 0;    // computing between its begin and the first that waits for it
  double waited = 0;   // computing stood still for it
};

struct TransferReport {
  std::vector<Transfer> transfers;  // in the order in which they run; those without bytes left out
  int64_t bytes = 0;
  double seconds = 0;          // of the whole plan
  double compute_seconds = 0;  // without transfers
  double link_seconds = 0;     // of all transfers
  double waited = 0;
};

// Bytes that a node sends from one rank to all others together; 0 where it is no collective.
int64_t sent_bytes(const Graph& graph, const Node& node);

TransferReport report_transfers(const Plan& plan, const MachineRates& rates);

}  // namespace octet
