#include "passes/freeze.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "passes/precision/policy.h"

namespace octet {
namespace {

template <typename F>
void freeze_where(Graph& graph, const F& is_frozen) {
  CHECK(graph.phase == Phase::logical);
  for (GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::parameter && is_frozen(input.name))
      input.kind = InputKind::constant;
  }
}

std::vector<std::string> parameters_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::parameter) names.push_back(input.name);
  }
  return names;
}

// A name with `*` for its numbers: "model.layers.*.input_layernorm.weight".
std::string without_numbers(const std::string& name) {
  std::string result;
  for (size_t first = 0; first <= name.size();) {
    const size_t end = std::min(name.find('.', first), name.size());
    const std::string part = name.substr(first, end - first);
    const bool is_number = part.find_first_not_of("0123456789") == std::string::npos;
    result.append(first == 0 ? "" : ".").append(is_number ? "*" : part);
    first = end + 1;
  }
  return result;
}

}  // namespace

void refuse_pattern(std::string_view key, std::string_view pattern, const Graph& graph) {
  std::vector<std::string> known;
  for (const std::string& name : parameters_of(graph)) {
    const std::string one = without_numbers(name);
    if (std::ranges::find(known, one) == known.end()) known.push_back(one);
  }
  throw Error(ErrorCode::invalid_argument,
              "{}: expected patterns of parameters ({}), got '{}', which matches none", key,
              fmt::join(known, ", "), pattern);
}

Graph freeze_parameters(Graph logical, const std::vector<std::string>& trained) {
  freeze_where(logical, [&](const std::string& name) {
    return std::ranges::find(trained, name) == trained.end();
  });
  return logical;
}

Graph freeze_matching(Graph logical, const std::vector<std::string>& patterns) {
  const std::vector<std::string> names = parameters_of(logical);
  for (const std::string& pattern : patterns) {
    const auto matches = [&](const std::string& name) { return matches_pattern(pattern, name); };
    if (std::ranges::none_of(names, matches)) refuse_pattern("train.freeze", pattern, logical);
  }
  freeze_where(logical, [&](const std::string& name) {
    return std::ranges::any_of(
        patterns, [&](const std::string& pattern) { return matches_pattern(pattern, name); });
  });
  if (parameters_of(logical).empty()) {
    throw Error(ErrorCode::invalid_argument,
                "train.freeze: expected patterns that leave a parameter to train, got [{}]",
                fmt::join(patterns, ", "));
  }
  return logical;
}

}  // namespace octet
