// Transfers of one training step of a rank to the others, and how long they take: an estimate from
// the plans alone (plan/transfers.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/ordered_json.h"
#include "compile/program.h"
#include "config/run_config.h"
#include "plan/transfers.h"

namespace octet {

// Transfers of one kind that computing stands still for, summed up.
struct Wait {
  std::string what;  // "reduce_scatter of layer 3, q_proj"
  WaitReason reason = WaitReason::none;
  int64_t times = 0;
  SentBytes bytes = {};
  double seconds = 0, slack = 0, waited = 0;  // as of a Transfer
};

class StepTransfers {
 public:
  StepTransfers(Program& program, const RunConfig& config, const MachineRates& rates);

  SentBytes bytes() const;      // sent by a rank, and received
  int64_t runs() const;         // of collectives, a barrier before each and behind it
  double seconds() const;       // of a step
  double hidden_share() const;  // of the transfers' time, behind computing
  double tokens_per_s() const;  // of all ranks together
  // The parts of a step's transfers that are not hidden, and why: the longest first.
  std::vector<Wait> waits() const;

  // Adds ranks, hosts, ranks_a_host (where these are added up first), sent_bytes,
  // sent_bytes_between_hosts, received_bytes, nccl_bytes, collective_runs, meetings, seconds within
  // and between hosts, hidden_share, step_seconds, tokens_per_s, waited_seconds and the waits.
  void add_to(OrderedJson& json) const;
  // The same in words, with the longest waits.
  std::string text() const;

 private:
  int64_t hosts() const;
  std::string hosts_text() const;
  std::string waits_text() const;
  double total(double TransferReport::*member) const;

  RunConfig config_;
  MachineRates rates_;
  std::vector<std::pair<TransferReport, int64_t>> functions_;  // and how often each runs
};

}  // namespace octet
