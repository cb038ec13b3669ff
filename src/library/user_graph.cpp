#include "library/user_graph.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/parse.h"
#include "ir/verify.h"

namespace octet {

Graph read_graph(std::string_view text, const std::string& file) {
  Graph graph = parse_graph(text, file);
  try {
    verify(graph);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, "{}: {}", file, error.what());
  }
  return graph;
}

ValueId add_input(Graph& graph, InputKind kind, const std::string& name, const std::string& dtype,
                  const Shape& shape) {
  const auto type = dtype_from_name(dtype);
  if (!type) throw Error(ErrorCode::invalid_argument, "expected a dtype, got {}", dtype);
  if (graph.find_input(name) != nullptr)
    throw Error(ErrorCode::invalid_argument, "expected a new input, got '{}' again", name);
  return Builder(graph).input(kind, name, {*type, shape});
}

void add_output(Graph& graph, const std::string& name, ValueId value) {
  expect_value(graph, value, name);
  if (graph.find_output(name) != nullptr)
    throw Error(ErrorCode::invalid_argument, "expected a new output, got '{}' again", name);
  Builder(graph).output(name, value);
}

void expect_value(const Graph& graph, ValueId value, std::string_view what) {
  if (value >= 0 && value < std::ssize(graph.values)) return;
  throw Error(ErrorCode::invalid_argument, "{}: expected a value of the graph, got %{}", what,
              value);
}

ScalifyOptions scalify_options(const Graph& graph, const std::string& rounding,
                               const std::map<std::string, double>& input_rms,
                               const std::map<std::string, int>& input_scales) {
  const auto expect_inputs = [&](std::string_view what, const auto& numbers) {
    for (const auto& entry : numbers) {
      if (graph.find_input(entry.first) == nullptr)
        throw Error(ErrorCode::invalid_argument, "{}: '{}' is no input of the graph", what,
                    entry.first);
    }
  };
  expect_inputs("input_rms", input_rms);
  expect_inputs("input_scales", input_scales);
  const auto chosen = enum_from_name<ScaleRounding>(rounding);
  if (!chosen)
    throw Error(ErrorCode::invalid_argument, "rounding: expected one of {}, got {}",
                fmt::join(enum_names<ScaleRounding>(), ", "), rounding);
  return {.rounding = *chosen, .input_rms = input_rms, .input_scales = input_scales};
}

}  // namespace octet
