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

SentBytes StepTransfers::bytes() const {
  SentBytes sum;
  for (const auto& [report, times] : functions_) {
    sum.within += times * report.bytes.within;
    sum.between += times * report.bytes.between;
  }
  return sum;
}

int64_t StepTransfers::runs() const {
  int64_t sum = 0;
  for (const auto& [report, times] : functions_) sum += times * report.runs;
  return sum;
}

int64_t StepTransfers::hosts() const {
  return rates_.ranks_a_host == 0 ? 1 : config_.parallel.ranks / rates_.ranks_a_host;
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
  json["hosts"] = hosts();
  if (rates_.has_levels) json["ranks_a_host"] = rates_.ranks_a_host;
  json["sent_bytes"] = json["received_bytes"] = bytes().all();
  json["sent_bytes_between_hosts"] = bytes().between;
  json["nccl_bytes"] = rates_.nccl_bytes;
  json["seconds_within_hosts"] = total(&TransferReport::within_seconds);
  json["seconds_between_hosts"] = total(&TransferReport::between_seconds);
  json["collective_runs"] = runs();
  json["meetings"] = 2 * runs();
  json["hidden_share"] = hidden_share();
  json["step_seconds"] = seconds();
  json["tokens_per_s"] = tokens_per_s();
}

std::string StepTransfers::hosts_text() const {
  if (hosts() == 1) return "";
  return fmt::format(" on {} hosts{}", hosts(), rates_.has_levels ? ", in two levels" : "");
}

std::string StepTransfers::text() const {
  constexpr size_t kShown = 12;
  const auto size = [](int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  std::string text = fmt::format(
      "{} ranks{}, shard {}: each sends and receives {} a step; at {:g} GB/s that is {:.1f} ms",
      config_.parallel.ranks, hosts_text(), config_.parallel.shard, size(bytes().within),
      rates_.link / 1e9, 1e3 * total(&TransferReport::within_seconds));
  if (hosts() > 1) {
    text += fmt::format(" within a host, and {} between hosts; at {:g} GB/s a rank {:.1f} ms",
                        size(bytes().between), rates_.network / 1e9,
                        1e3 * total(&TransferReport::between_seconds));
  }
  text += fmt::format(
      "\n{} runs of collectives, {} barriers of all ranks: {:.1f} ms with them, {:.1f} % of it "
      "hidden behind {:.1f} ms of computing (by the rates of one NVIDIA H200: {:.0f} ms a step, "
      "about {:.0f} tokens/s of all ranks)\n",
      runs(), 2 * runs(), 1e3 * total(&TransferReport::link_seconds), 100 * hidden_share(),
      1e3 * total(&TransferReport::compute_seconds), 1e3 * seconds(), tokens_per_s());
  if (rates_.nccl_bytes > 0)
    text += fmt::format("NCCL takes about {} of each GPU besides, as of two H100\n",
                        size(rates_.nccl_bytes));
  std::vector<Transfer> longest;
  for (const auto& [report, times] : functions_)
    longest.insert(longest.end(), report.transfers.begin(), report.transfers.end());
  std::ranges::stable_sort(longest, std::greater{}, &Transfer::waited);
  if (longest.size() > kShown) longest.resize(kShown);
  // What goes between hosts in a column of its own, where there are several.
  const auto between = [&](const std::string& of) {
    return hosts() > 1 ? fmt::format(" {:>10}", of) : "";
  };
  text += fmt::format("  {:>10}{} {:>9} {:>9} {:>9}  longest waits\n", "bytes", between("between"),
                      "ms", "slack", "waited");
  for (const Transfer& one : longest) {
    const std::string_view reason = words(one.reason());
    text += fmt::format("  {:>10}{} {:9.3f} {:9.3f} {:9.3f}  {}{}{}\n", size(one.bytes.all()),
                        between(size(one.bytes.between)), 1e3 * one.seconds, 1e3 * one.slack,
                        1e3 * one.waited, one.what, reason.empty() ? "" : ": ", reason);
  }
  return text;
}

}  // namespace octet
