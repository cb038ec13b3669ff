#include "train/step_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include "base/units.h"

namespace octet {
namespace {

std::string size_text(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

}  // namespace

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

std::vector<Wait> StepTransfers::waits() const {
  std::vector<Wait> waits;
  for (const auto& [report, times] : functions_) {
    for (const Transfer& one : report.transfers) {
      if (one.waited <= 0 || times == 0) continue;
      const auto same = [&](const Wait& wait) {
        return wait.what == one.what && wait.reason == one.reason();
      };
      auto kind = std::ranges::find_if(waits, same);
      if (kind == waits.end())
        kind = waits.insert(kind, {.what = one.what, .reason = one.reason()});
      const auto n = static_cast<double>(times);
      kind->times += times;
      kind->bytes.within += times * one.bytes.within;
      kind->bytes.between += times * one.bytes.between;
      kind->seconds += n * one.seconds, kind->slack += n * one.slack,
          kind->waited += n * one.waited;
    }
  }
  std::ranges::stable_sort(waits, std::greater{}, &Wait::waited);
  return waits;
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
  json["waited_seconds"] = total(&TransferReport::waited);
  json["waits"] = OrderedJson::array();
  for (const Wait& one : waits()) {
    json["waits"].push_back({{"what", one.what},
                             {"reason", words(one.reason)},
                             {"times", one.times},
                             {"sent_bytes", one.bytes.all()},
                             {"sent_bytes_between_hosts", one.bytes.between},
                             {"seconds", one.seconds},
                             {"slack_seconds", one.slack},
                             {"waited_seconds", one.waited}});
  }
}

std::string StepTransfers::hosts_text() const {
  if (hosts() == 1) return "";
  return fmt::format(" on {} hosts{}", hosts(), rates_.has_levels ? ", in two levels" : "");
}

std::string StepTransfers::text() const {
  std::string text = fmt::format(
      "{} ranks{}, shard {}: each sends and receives {} a step; at {:g} GB/s that is {:.1f} ms",
      config_.parallel.ranks, hosts_text(), enum_name(config_.parallel.shard),
      size_text(bytes().within), rates_.link / 1e9, 1e3 * total(&TransferReport::within_seconds));
  if (hosts() > 1) {
    text += fmt::format(" within a host, and {} between hosts; at {:g} GB/s a rank {:.1f} ms",
                        size_text(bytes().between), rates_.network / 1e9,
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
                        size_text(rates_.nccl_bytes));
  return text + waits_text();
}

std::string StepTransfers::waits_text() const {
  constexpr size_t kShown = 12;
  const std::vector<Wait> all = waits();
  if (all.empty()) return "";
  // Bytes between hosts have a column of their own, where there are several.
  const auto line = [&](const std::array<std::string, 6>& of) {
    const std::string between = hosts() > 1 ? fmt::format(" {:>10}", of[1]) : "";
    return fmt::format("  {:>10}{} {:>9} {:>9} {:>9}  {}\n", of[0], between, of[2], of[3], of[4],
                       of[5]);
  };
  const auto ms = [](double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); };
  std::string text = line({"bytes", "between", "ms", "slack", "waited", "not hidden, and why"});
  const size_t n_shown = std::min(all.size(), kShown);
  for (const Wait& one : std::span(all).first(n_shown)) {
    const std::string times = one.times > 1 ? fmt::format("{} x ", one.times) : "";
    text += line({size_text(one.bytes.all()), size_text(one.bytes.between), ms(one.seconds),
                  ms(one.slack), ms(one.waited),
                  fmt::format("{}{}: {}", times, one.what, words(one.reason))});
  }
  double others = 0;
  for (const Wait& one : std::span(all).subspan(n_shown)) others += one.waited;
  if (all.size() > n_shown)
    text += line({"", "", "", "", ms(others), fmt::format("{} others", all.size() - n_shown)});
  return text;
}

}  // namespace octet
