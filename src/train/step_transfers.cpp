#include "train/step_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/units.h"

namespace octet {

StepTransfers::StepTransfers(Program& program, const RunConfig& config, const MachineRates& rates)
    : config_(config), rates_(rates) {
  for (const std::string_view name : program.train_functions()) {
    const int64_t times = name == function::micro_next ? config.train.accumulate - 1 : 1;
    functions_.emplace_back(report_transfers(program.plan(name), rates), times);
  }
}

double StepTransfers::total(double TransferReport::*member) const {
  double sum = 0;
  for (const auto& [report, times] : functions_)
    sum += static_cast<double>(times) * (report.*member);
  return sum;
}

int64_t StepTransfers::bytes() const {
  int64_t sum = 0;
  for (const auto& [report, times] : functions_) sum += times * report.bytes;
  return sum;
}

double StepTransfers::seconds() const {
  return total(&TransferReport::seconds);
}

double StepTransfers::hidden_share() const {
  const double link = total(&TransferReport::link_seconds);
  return link > 0 ? std::max(0.0, 1 - total(&TransferReport::waited) / link) : 1;
}

double StepTransfers::tokens_per_s() const {
  return static_cast<double>(config_.step_rows() * config_.model.seq) / seconds();
}

void StepTransfers::add_to(OrderedJson& json) const {
  json["ranks"] = config_.parallel.ranks;
  json["sent_bytes"] = json["received_bytes"] = bytes();
  json["hidden_share"] = hidden_share();
  json["step_seconds"] = seconds();
  json["tokens_per_s"] = tokens_per_s();
}

std::string StepTransfers::text() const {
  constexpr size_t kShown = 12;
  std::string text = fmt::format(
      "{} ranks, shard {}: each sends and receives {} a step; at {:g} GB/s that is {:.1f} ms, "
      "{:.1f} % of it hidden behind {:.1f} ms of computing (by the rates of one NVIDIA H200: about "
      "{:.0f} tokens/s of all ranks)\n",
      config_.parallel.ranks, config_.parallel.shard, bytes_text(static_cast<double>(bytes())),
      rates_.link / 1e9, 1e3 * total(&TransferReport::link_seconds), 100 * hidden_share(),
      1e3 * total(&TransferReport::compute_seconds), tokens_per_s());
  std::vector<Transfer> longest;
  for (const auto& [report, times] : functions_)
    longest.insert(longest.end(), report.transfers.begin(), report.transfers.end());
  std::ranges::stable_sort(longest, std::greater{}, &Transfer::waited);
  if (longest.size() > kShown) longest.resize(kShown);
  text +=
      fmt::format("  {:>10} {:>9} {:>9} {:>9}  longest waits\n", "bytes", "ms", "slack", "waited");
  for (const Transfer& one : longest) {
    text += fmt::format("  {:>10} {:9.3f} {:9.3f} {:9.3f}  {}\n",
                        bytes_text(static_cast<double>(one.bytes)), 1e3 * one.seconds,
                        1e3 * one.slack, 1e3 * one.waited, one.what);
  }
  return text;
}

}  // namespace octet
