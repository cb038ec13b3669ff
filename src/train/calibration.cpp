#include "train/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <span>

namespace octet {
namespace {

// Operands of GEMMs: what a recipe's scales can reach.
bool is_operand(const EdgeStatistics& edge) {
  return edge.tag.layer >= 0 && edge.edge.starts_with("layers.");
}

}  // namespace

std::vector<EdgeAlarm> alarms_of(const std::vector<EdgeStatistics>& edges, Group* group,
                                 AlarmRule rule) {
  std::vector<EdgeAlarm> alarms;
  for (const EdgeStatistics& edge : edges) {
    if (!is_operand(edge)) continue;
    const bool is_forward = edge.edge.ends_with(".x") || edge.edge.ends_with(".w");
    const bool by_maximum = rule == AlarmRule::by_maximum && is_forward && edge.nonfinite == 0;
    alarms.push_back({edge, by_maximum ? edge.rescale_of_maximum() : edge.rescale()});
  }
  std::vector<int> own;
  bool is_spoiled = false;
  for (const EdgeAlarm& alarm : alarms) {
    own.push_back(is_spoiled ? 0 : alarm.log2);
    is_spoiled = is_spoiled || alarm.edge.nonfinite > 0;
  }
  const std::vector<int> all = gather_values(group, std::span<const int>(own));
  for (size_t i = 0; i < all.size(); ++i) {
    int& log2 = alarms[i % own.size()].log2;
    const int other = all[i];
    if (i < own.size()) log2 = 0;
    if (std::abs(other) > std::abs(log2) || (std::abs(other) == std::abs(log2) && other < log2))
      log2 = other;
  }
  std::erase_if(alarms, [](const EdgeAlarm& alarm) { return alarm.log2 == 0; });
  return alarms;
}

std::string alarm_text(const EdgeAlarm& alarm) {
  const EdgeStatistics& edge = alarm.edge;
  const FormatWindow window = format_window(edge.dtype).value_or(FormatWindow{});
  if (edge.nonfinite > 0) {
    return fmt::format("{}: {:.2g} % of the data not finite in {}", edge.edge, 100 * edge.nonfinite,
                       dtype_name(edge.dtype));
  }
  return fmt::format("{}: data of RMS 2^{:.1f}, {:.2g} % saturated; {} keeps 2^{:g} to 2^{:g}",
                     edge.edge, edge.drift(), 100 * edge.saturated, dtype_name(edge.dtype),
                     window.low, window.high);
}

std::vector<std::string> with_rescales(const std::vector<std::string>& scales,
                                       const std::vector<EdgeAlarm>& alarms) {
  std::vector<EdgeScale> known;
  for (const std::string& text : scales) known.push_back(edge_scale_from_text(text).value());
  std::vector<std::string> result = scales;
  for (const EdgeAlarm& alarm : alarms) {
    const std::string& edge = alarm.edge.edge;
    std::erase_if(result, [&](const std::string& text) { return text.starts_with(edge + "="); });
    result.push_back(fmt::format("{}={}", edge, edge_scale(known, edge) + alarm.log2));
  }
  return result;
}

}  // namespace octet
