// Bytes that a plan of one rank sends to the others, and how much of it computing hides: an
// estimate from the plan alone, which needs no device.
//
// The plan's two streams are simulated (plan/streams.h). A step takes the longer of flops / rate
// and bytes / bandwidth. What is still under way when the plan ends counts as waited for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace octet {

// Rates that kernels reach on one NVIDIA H200 (docs/results), its link's by the data sheet, and a
// network of 400 Gbit/s a rank. Starts and barriers as two H100 took them.
struct MachineRates {
  double flops_bf16 = 700e12;       // per second; GEMMs of BF16
  double flops_8_bit = 1250e12;     // of 8 bits
  double flops_attention = 440e12;  // forward and backward together
  double bytes = 3.5e12;            // per second; memory
  double link = 450e9;              // per second and direction; between ranks of a host
  double network = 50e9;            // between hosts, of each rank
  double step = 3e-6;               // seconds that any step takes at least
  double start = 20e-6;             // of a collective, before its bytes flow
  double barrier = 5e-6;            // of all ranks, before and behind a run of collectives
  int64_t ranks_a_host = 0;         // 0: all are of one
  // Within the hosts first, or for gathers last, and between them along ranks of equal number.
  bool has_levels = false;
  int64_t nccl_bytes = 0;  // of each GPU, beside the plan
};

// Bytes that one rank sends to others of its host, and to those of other hosts.
struct SentBytes {
  int64_t within = 0, between = 0;
  int64_t all() const { return within + between; }
};

// Why computing stands still for a transfer.
enum class WaitReason : uint8_t { none, needed_at_once, longer_than_computing, behind_others };
std::string_view words(WaitReason reason);

struct Transfer {
  std::string what;    // "reduce_scatter of layer 3, q_proj"
  SentBytes bytes;     // by this rank, and received by it
  double seconds = 0;  // on the link, or on the network where that takes longer; in levels, both
  double queued = 0;   // before its begin, behind transfers before it
  double slack = 0;    // computing between its begin and the first that waits for it
  double waited = 0;   // computing stood still for it
  WaitReason reason() const;
};

struct TransferReport {
  std::vector<Transfer> transfers;  // in the order in which they run; those without bytes left out
  SentBytes bytes;
  int64_t runs = 0;            // of collectives, a barrier before each and behind it
  double seconds = 0;          // of the whole plan
  double compute_seconds = 0;  // without transfers
  double link_seconds = 0;     // of all transfers, with starts and barriers
  double within_seconds = 0;   // of the bytes alone, within hosts
  double between_seconds = 0;  // and between them
  double waited = 0;
};

// Bytes that a node sends from one rank to all others together; nothing where it is no collective.
SentBytes sent_bytes(const Graph& graph, const Node& node, const MachineRates& rates);

TransferReport report_transfers(const Plan& plan, const MachineRates& rates);

}  // namespace octet
