#include "property/planner/plan_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>

#include "ir/op_def.h"
#include "plan/report.h"
#include "plan/views.h"

namespace octet::plan_checker {
namespace {

int64_t number(const std::string& text) {
  return std::strtoll(text.c_str(), nullptr, 10);
}

std::vector<int> values_in(const std::string& text) {
  static const std::regex value("%([0-9]+)");
  std::vector<int> ids;
  for (std::sregex_iterator it(text.begin(), text.end(), value), end; it != end; ++it)
    ids.push_back(static_cast<int>(number((*it)[1])));
  return ids;
}

// Bytes [offset, offset + bytes) of one arena.
struct Place {
  Arena arena = Arena::transient;
  int64_t offset = 0, bytes = 0;
  bool overlaps(const Place& o) const {
    return arena == o.arena && offset < o.offset + o.bytes && o.offset < offset + bytes;
  }
};

int root_of(const Graph& graph, int id) {
  for (;;) {
    const NodeId n = graph.value(id).producer;
    if (n == kNoNode || !is_view(graph, graph.node(n))) return id;
    id = graph.node(n).operands[0];
  }
}

class Checker {
 public:
  explicit Checker(const Plan& plan)
      : plan_(plan),
        graph_(plan.graph),
        lines_(parse_program(program_text(plan, Offsets::yes))),
        last_read_(last_reads(plan, lines_)),
        written_(graph_.values.size(), -2) {}

  std::vector<std::string> run() {
    if (lines_.size() != plan_.steps.size()) fault("the program has other steps than the plan");
    for (const GraphInput& input : graph_.inputs) begin(input.value, -1);
    for (size_t i = 0; i < lines_.size(); ++i) step(static_cast<int>(i));
    outputs();
    return std::move(faults_);
  }

 private:
  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  int root(int id) const { return root_of(graph_, id); }
  Place place(int id) const {
    const auto at = static_cast<size_t>(id);
    const Buffer& b = plan_.buffers[static_cast<size_t>(plan_.buffer_of[at])];
    return {b.arena, b.offset + plan_.offset_of[at], graph_.type(id).n_bytes()};
  }
  void inside(const Place& p, const std::string& what) {
    if (p.offset < 0 || p.offset % kAlignment != 0 ||
        p.offset + p.bytes > plan_.arena_bytes[static_cast<int>(p.arena)])
      fault("{} lies outside its arena or is not aligned", what);
  }

  // The value's bytes hold it from now on; whose bytes they were is gone.
  void begin(int id, int step) {
    const Place mine = place(id);
    inside(mine, fmt::format("%{}", id));
    std::erase_if(live_, [&](int other) {
      if (!mine.overlaps(place(other))) return false;
      if (last_read_[static_cast<size_t>(other)] > step)
        fault("step {}: %{} overwrites %{}, which step {} reads", step, id, other,
              last_read_[static_cast<size_t>(other)]);
      return true;
    });
    live_.push_back(id);
    written_[static_cast<size_t>(id)] = step;
  }

  void step(int i) {
    const Line& line = lines_[static_cast<size_t>(i)];
    const Node& node = graph_.node(plan_.steps[static_cast<size_t>(i)].node);
    for (const int id : line.operands) {
      if (std::find(live_.begin(), live_.end(), root(id)) == live_.end())
        fault("step {} reads %{}, whose bytes are not there", i, id);
    }
    const Place scratch{Arena::transient, line.scratch_offset, line.scratch_bytes};
    inside(scratch, fmt::format("scratch of step {}", i));
    for (const int id : live_) {
      if (last_read_[static_cast<size_t>(id)] >= i && scratch.overlaps(place(id)))
        fault("step {}: scratch overlaps %{}", i, id);
    }
    for (size_t r = 0; r < line.results.size(); ++r) {
      const Place mine = place(line.results[r]);
      if (scratch.overlaps(mine)) fault("step {}: scratch overlaps a result", i);
      for (size_t q = 0; q < r; ++q) {
        if (mine.overlaps(place(line.results[q]))) fault("step {}: two results overlap", i);
      }
      for (size_t o = 0; o < node.operands.size(); ++o) {
        if (node.operands[o] != kNoValue && mine.overlaps(place(node.operands[o])) &&
            !legal(node, slot_of(node, line.results[r]), o))
          fault("step {}: result {} may not overwrite operand {}", i, r, o);
      }
    }
    for (const int id : line.results) begin(id, i);
  }

  static size_t slot_of(const Node& node, int result) {
    const auto it = std::find(node.results.begin(), node.results.end(), result);
    return static_cast<size_t>(it - node.results.begin());
  }

  static bool legal(const Node& node, size_t result, size_t operand) {
    const auto pairs = op_def(node.op).inplace;
    return std::any_of(pairs.begin(), pairs.end(), [&](InplacePair pair) {
      return static_cast<size_t>(pair.result) == result &&
             static_cast<size_t>(pair.operand) == operand;
    });
  }

  void outputs() {
    for (const GraphOutput& output : graph_.outputs) {
      if (std::find(live_.begin(), live_.end(), root(output.value)) == live_.end())
        fault("output {} is not there at the end", output.name);
      if (output.updates == kNoValue) continue;
      // A shard of it is one of several parts.
      const Place aliased = place(output.updates), mine = place(output.value);
      const int64_t at = mine.offset - aliased.offset;
      const bool fits = at >= 0 && at + mine.bytes <= aliased.bytes && at % mine.bytes == 0;
      if (aliased.arena != mine.arena || !fits)
        fault("output {} does not lie where its input does", output.name);
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  std::vector<Line> lines_;
  std::vector<int> last_read_;
  std::vector<int> written_;  // the step that wrote the value
  std::vector<int> live_;     // values whose bytes hold them
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<Line> parse_program(const std::string& text) {
  static const std::regex form(
      R"(^\s*\d+ [^|]*\|[^|]*\| (%.*) <- (.*) \| \d+(?: scratch (\d+) @transient\+(\d+))?)"
      R"((?: beside computing)?(?:, (?:barrier|when \d).*)?$)");
  std::vector<Line> lines;
  std::istringstream stream(text);
  for (std::string row; std::getline(stream, row);) {
    std::smatch match;
    if (!std::regex_match(row, match, form)) continue;
    Line line{.results = values_in(match[1]), .operands = values_in(match[2])};
    if (match[3].matched) {
      line.scratch_bytes = number(match[3]);
      line.scratch_offset = number(match[4]);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<int> last_reads(const Plan& plan, const std::vector<Line>& lines) {
  const Graph& graph = plan.graph;
  // The program reads views; the bytes are those of what they show.
  std::vector<int> last(graph.values.size(), -1);
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const int id : lines[i].operands)
      last[static_cast<size_t>(root_of(graph, id))] = static_cast<int>(i);
  }
  for (const GraphOutput& output : graph.outputs)
    last[static_cast<size_t>(root_of(graph, output.value))] = static_cast<int>(lines.size());
  return last;
}

std::vector<std::string> faults(const Plan& plan) {
  return Checker(plan).run();
}

}  // namespace octet::plan_checker
