#include "train/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <span>

namespace octet {
namespace {

// Operands of GEMMs: what a recipe's scales can reach.
bool is_operand(const EdgeStatistics& edge) {
  return edge.tag.layer >= 0 && edge.edge.find(':') == std::string::npos;
}

int rescale_by(AlarmRule rule, const EdgeStatistics& edge) {
  if (rule == AlarmRule::by_window) return edge.rescale();
  return edge.rescale_of_maximum(rule == AlarmRule::before_first_step ? FlushedCodes::counted
                                                                      : FlushedCodes::ignored);
}

// Members of a group have one scale: down by what the largest needs, up by what any needs and all
// have room for.
void agree_in_groups(std::vector<EdgeAlarm>& alarms, const std::vector<int>& rooms) {
  struct Needs {
    int down = 0, up = 0, room = std::numeric_limits<int>::max();
  };
  const auto key = [](const EdgeStatistics& edge) {
    return edge.group + edge.edge.substr(edge.edge.rfind('.'));
  };
  std::map<std::string, Needs> groups;
  for (size_t i = 0; i < alarms.size(); ++i) {
    Needs& needs = groups[key(alarms[i].edge)];
    needs.down = std::min(needs.down, alarms[i].log2);
    needs.up = std::max(needs.up, alarms[i].log2);
    needs.room = std::min(needs.room, rooms[i]);
  }
  for (EdgeAlarm& alarm : alarms) {
    if (alarm.edge.group.empty()) continue;
    const Needs& needs = groups.at(key(alarm.edge));
    alarm.log2 = needs.down < 0 ? needs.down : std::min(needs.up, needs.room);
  }
}

}  // namespace

bool Calibration::samples(int64_t step) const {
  constexpr int64_t kMaxFollowing = 4;
  const auto is_scheduled = [&](int64_t at) {
    return at > 0 && (at == first || (recheck > 0 && at > first && at % recheck == 0));
  };
  if (is_scheduled(step)) return true;
  if (rescaled == 0 || step != rescaled + 1) return false;
  for (int64_t before = 1; before <= kMaxFollowing; ++before)
    if (is_scheduled(step - before)) return true;
  return false;
}

std::vector<EdgeAlarm> alarms_of(const std::vector<EdgeStatistics>& edges, Group* group,
                                 AlarmRule rule) {
  std::vector<EdgeAlarm> alarms;
  for (const EdgeStatistics& edge : edges) {
    if (!is_operand(edge)) continue;
    alarms.push_back({edge, rescale_by(rule, edge)});
  }
  std::vector<int> own, rooms;
  bool is_spoiled = false;
  for (const EdgeAlarm& alarm : alarms) {
    own.push_back(is_spoiled ? 0 : alarm.log2);
    rooms.push_back(alarm.edge.room());
    is_spoiled = is_spoiled || alarm.edge.nonfinite > 0;
  }
  const std::vector<int> all = gather_values(group, std::span<const int>(own));
  const std::vector<int> all_rooms = gather_values(group, std::span<const int>(rooms));
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t edge = i % own.size();
    int& log2 = alarms[edge].log2;
    const int other = all[i];
    if (i < own.size()) log2 = 0;
    if (std::abs(other) > std::abs(log2) || (std::abs(other) == std::abs(log2) && other < log2))
      log2 = other;
    rooms[edge] = std::min(rooms[edge], all_rooms[i]);
  }
  agree_in_groups(alarms, rooms);
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
    const int log2 =
        std::clamp(edge_scale(known, edge) + alarm.log2, -kMaxEdgeScale, kMaxEdgeScale);
    result.push_back(fmt::format("{}={}", edge, log2));
  }
  return result;
}

}  // namespace octet
