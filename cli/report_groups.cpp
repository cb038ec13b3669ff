#include "cli/report_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

namespace octet {
namespace {

using Strings = std::vector<std::string>;

// Keys in which runs of a group may differ.
bool is_of_a_run(std::string_view key) {
  return key == "train.seed" || key == "out";
}

bool is_repeated(const RunData& a, const RunData& b) {
  if (a.config.empty() || a.config.size() != b.config.size()) return false;
  return std::ranges::equal(a.config, b.config, [](const auto& x, const auto& y) {
    return x.first == y.first && (x.second == y.second || is_of_a_run(x.first));
  });
}

// The end of a path, with as many of its folders as tell it from all others.
std::string folder_label(const std::vector<RunData>& runs, size_t i) {
  const std::string& name = runs[i].name;
  const auto is_end_of_others = [&](std::string_view end) {
    return std::ranges::count_if(runs, [&](const RunData& run) {
             return run.name == end || run.name.ends_with(fmt::format("/{}", end));
           }) > 1;
  };
  for (size_t at = name.rfind('/'); at != name.npos && at > 0; at = name.rfind('/', at - 1)) {
    std::string end = name.substr(at + 1);
    if (!is_end_of_others(end)) return end;
  }
  return name;
}

// Keys, with values, that tell a group from the others of its recipe; its folder where they are
// more than two.
std::string own_keys(const std::vector<RunData>& runs, const std::vector<RunGroup>& groups,
                     const RunGroup& own) {
  const RunData& run = runs[own.runs.front()];
  Strings keys;
  for (size_t k = 0; k < run.config.size(); ++k) {
    const std::string &key = run.config[k].first, &value = run.config[k].second;
    const bool differs = std::ranges::any_of(groups, [&](const RunGroup& group) {
      const RunData& other = runs[group.runs.front()];
      return other.recipe == run.recipe && !other.config.empty() && other.config[k].second != value;
    });
    if (differs && !is_of_a_run(key)) keys.push_back(fmt::format("{} {}", key, value));
  }
  if (keys.empty()) return "";
  if (keys.size() > 2 || keys.front().size() + keys.back().size() > 60)
    return ", " + folder_label(runs, own.runs.front());
  return keys.size() == 1 ? ", " + keys[0] : fmt::format(", {}, {}", keys[0], keys[1]);
}

// Names that are not told apart by what they say are by their place in the list.
void make_distinct(Strings& labels) {
  std::set<std::string> taken;
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::string label = labels[i];
    for (size_t n = i + 1; !taken.insert(labels[i]).second; ++n)
      labels[i] = fmt::format("{} ({})", label, n);
  }
}

std::string run_label(const std::vector<RunData>& runs, const RunGroup& group, size_t i) {
  const RunData& run = runs[i];
  if (run.config.empty()) return run.name;
  if (group.runs.size() > 1) return fmt::format("{}, seed {}", group.label, run.seed());
  const std::string folder = folder_label(runs, i);
  return group.label == folder || group.label.ends_with(folder)
             ? group.label
             : fmt::format("{} \u00b7 {}", group.label, folder);
}

}  // namespace

RunGroups group_runs(const std::vector<RunData>& runs) {
  RunGroups result;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto same = std::ranges::find_if(result.groups, [&](const RunGroup& group) {
      return is_repeated(runs[group.runs.front()], runs[i]) &&
             std::ranges::none_of(group.runs,
                                  [&](size_t j) { return runs[j].seed() == runs[i].seed(); });
    });
    if (same != result.groups.end())
      same->runs.push_back(i);
    else
      result.groups.push_back({"", {i}});
  }
  Strings labels;
  for (const RunGroup& group : result.groups) {
    const RunData& run = runs[group.runs.front()];
    labels.push_back(run.config.empty() ? run.name
                                        : run.recipe + own_keys(runs, result.groups, group));
  }
  // A seed that is there again begins a group whose keys do not tell it from the first one.
  for (size_t g = labels.size(); g-- > 0;) {
    const auto others = std::span(labels).first(g);
    if (std::ranges::find(others, labels[g]) != others.end())
      labels[g] += ", " + folder_label(runs, result.groups[g].runs.front());
  }
  make_distinct(labels);
  result.labels.resize(runs.size());
  for (size_t g = 0; g < labels.size(); ++g) {
    result.groups[g].label = labels[g];
    for (const size_t i : result.groups[g].runs)
      result.labels[i] = run_label(runs, result.groups[g], i);
  }
  make_distinct(result.labels);
  const auto bf16 = std::ranges::find_if(result.groups, [&](const RunGroup& group) {
    return runs[group.runs.front()].recipe == "bf16";
  });
  if (bf16 != result.groups.end())
    result.baseline = static_cast<size_t>(bf16 - result.groups.begin());
  return result;
}

}  // namespace octet
