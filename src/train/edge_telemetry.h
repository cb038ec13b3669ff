// Samples of edges as lines of telemetry.jsonl. Format: docs/formats/run.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "runtime/edge_statistics.h"

namespace octet {

std::string telemetry_json(int64_t step, const EdgeStatistics& edge);

struct EdgeSample {
  int64_t step = 0;
  EdgeStatistics edge = {};
};
// The sample of such a line; nothing where it is another.
std::optional<EdgeSample> parse_edge(std::string_view line);

// True if a is farther outside its format's window than b, or as far, and lost more.
bool is_worse(const EdgeStatistics& a, const EdgeStatistics& b);

// The last sample of the file, the worst first; empty where there is none.
std::vector<EdgeSample> newest_edges(Files& files, const std::string& path);

}  // namespace octet
