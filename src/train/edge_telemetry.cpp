#include "train/edge_telemetry.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/json.h"
#include "base/named_enum.h"
#include "base/ordered_json.h"

namespace octet {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 30;

}  // namespace

std::string telemetry_json(int64_t step, const EdgeStatistics& edge) {
  OrderedJson json{{"step", step},
                   {"event", "edge"},
                   {"edge", edge.edge},
                   {"layer", edge.tag.layer},
                   {"role", enum_name(edge.tag.role)},
                   {"dtype", dtype_name(edge.dtype)},
                   {"elements", edge.n},
                   {"rms", edge.rms},
                   {"amax", edge.amax},
                   {"zeros", edge.zeros},
                   {"saturated", edge.saturated},
                   {"scale", edge.scale}};
  const double drift = edge.drift();
  if (std::isfinite(drift)) json["drift"] = drift;
  if (edge.snr) json["snr_db"] = *edge.snr;
  if (const int rescale = edge.rescale(); rescale != 0) json["rescale_log2"] = rescale;
  return json.dump();
}

std::optional<EdgeSample> parse_edge(std::string_view line) {
  constexpr std::string_view kEvent = "\"event\":\"edge\"";
  if (line.find(kEvent) == line.npos) return std::nullopt;
  const Json json = parse_own_json(line);
  if (!json.is_object()) return std::nullopt;
  const auto number = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_number() ? it->get<double>() : 0.0;
  };
  const auto text = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto dtype = dtype_from_name(text("dtype"));
  if (!dtype) return std::nullopt;
  EdgeSample sample{.step = static_cast<int64_t>(number("step"))};
  EdgeStatistics& edge = sample.edge;
  edge.edge = text("edge");
  edge.tag.layer = static_cast<int>(number("layer"));
  edge.tag.role = enum_from_name<Role>(text("role")).value_or(Role::forward);
  edge.dtype = *dtype;
  edge.n = static_cast<int64_t>(number("elements"));
  edge.rms = number("rms"), edge.amax = number("amax"), edge.zeros = number("zeros");
  edge.saturated = number("saturated"), edge.scale = number("scale");
  if (json.contains("snr_db")) edge.snr = number("snr_db");
  return sample;
}

bool is_worse(const EdgeStatistics& a, const EdgeStatistics& b) {
  const auto badness = [](const EdgeStatistics& edge) {
    return std::pair(std::abs(edge.rescale()), edge.zeros + edge.saturated);
  };
  return badness(a) > badness(b);
}

std::vector<EdgeSample> newest_edges(Files& files, const std::string& path) {
  std::vector<EdgeSample> newest;
  if (files.kind(path) != EntryKind::file) return newest;
  std::istringstream text(files.read_text(path, kMaxBytes));
  for (std::string line; std::getline(text, line);) {
    auto sample = parse_edge(line);
    if (!sample) continue;
    if (!newest.empty() && newest.front().step != sample->step) newest.clear();
    newest.push_back(std::move(*sample));
  }
  std::ranges::stable_sort(newest, is_worse, &EdgeSample::edge);
  return newest;
}

}  // namespace octet
