#include "library/user_graph.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/custom_scale.h"
#include "ir/ops/scale_rules.h"
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
  if (std::ranges::any_of(shape, [](int64_t n) { return n < 0; }))
    throw Error(ErrorCode::invalid_argument, "{}: expected no negative dimension, got {}", name,
                to_string(shape));
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

void erase_output(Graph& graph, const std::string& name) {
  const auto n = std::erase_if(graph.outputs, [&](const auto& out) { return out.name == name; });
  if (n == 0) throw Error(ErrorCode::invalid_argument, "'{}' is no output of the graph", name);
}

namespace {

template <typename E>
E named(std::string_view what, const std::string& name) {
  if (const auto value = enum_from_name<E>(name)) return *value;
  throw Error(ErrorCode::invalid_argument, "{}: expected one of {}, got {}", what,
              fmt::join(enum_names<E>(), ", "), name);
}

// Names of inputs or outputs; `find` says whether the graph has one of that name.
template <typename F>
std::set<std::string> scaled_names(std::string_view what, const std::vector<std::string>& names,
                                   const F& find) {
  std::set<std::string> known;
  for (const std::string& name : names) {
    if (!find(name))
      throw Error(ErrorCode::invalid_argument, "{}: expected a float of the graph, got '{}'", what,
                  name);
    if (!known.insert(name).second)
      throw Error(ErrorCode::invalid_argument, "{}: expected each name once, got '{}' again", what,
                  name);
  }
  return known;
}

// log2 of what f32 holds above 0; of scales, powers of two whose inverse it holds, too.
constexpr double kLeastRms = -149, kMostRms = 128;
constexpr int kMostScale = 126;

}  // namespace

namespace {

// row: one a row; channel: one a column, Rx1 of R rows.
Granularity axis_of(std::string_view what, const std::string& name, const Shape& shape) {
  if (name != "row" && name != "channel")
    throw Error(ErrorCode::invalid_argument, "{}: expected one of tensor, row, channel, got {}",
                what, name);
  if (shape.size() != 2)
    throw Error(ErrorCode::invalid_argument, "{}: expected a matrix for a scale a {}, got {}", what,
                name, to_string(shape));
  if (name == "row") return {.kind = Granularity::Kind::row};
  return {.kind = Granularity::Kind::column_group, .size = std::max<int64_t>(1, shape[0])};
}

}  // namespace

ScalifyOptions scalify_options(const Graph& graph, const ScalifySettings& settings) {
  const auto is_real_input = [&](const std::string& name) {
    const GraphInput* input = graph.find_input(name);
    return input != nullptr && is_float(graph.type(input->value).dtype);
  };
  const auto is_real_output = [&](const std::string& name) {
    const GraphOutput* output = graph.find_output(name);
    return output != nullptr && is_float(graph.type(output->value).dtype);
  };
  const auto expect_inputs = [&](std::string_view what, const auto& numbers) {
    for (const auto& entry : numbers) {
      if (graph.find_input(entry.first) == nullptr)
        throw Error(ErrorCode::invalid_argument, "{}: '{}' is no input of the graph", what,
                    entry.first);
    }
  };
  if (graph.phase != Phase::logical)
    throw Error(ErrorCode::invalid_argument,
                "scalify: expected a graph in phase logical, before any recipe, got {}",
                enum_name(graph.phase));
  expect_inputs("input_rms", settings.input_rms);
  expect_inputs("input_scales", settings.input_scales);
  for (const auto& [name, log2] : settings.input_rms) {
    if (!(log2 >= kLeastRms && log2 <= kMostRms))
      throw Error(ErrorCode::invalid_argument,
                  "input_rms: expected log2 from {} to {} of '{}', got {}", kLeastRms, kMostRms,
                  name, log2);
  }
  for (const auto& [name, log2] : settings.input_scales) {
    if (std::abs(log2) > kMostScale)
      throw Error(ErrorCode::invalid_argument,
                  "input_scales: expected log2 from {} to {} of '{}', got {}", -kMostScale,
                  kMostScale, name, log2);
  }
  ScalifyOptions options{
      .rounding = named<ScaleRounding>("rounding", settings.rounding),
      .input_rms = settings.input_rms,
      .input_scales = settings.input_scales,
      .scaled_inputs = scaled_names("scaled_inputs", settings.scaled_inputs, is_real_input),
      .scaled_outputs = scaled_names("scaled_outputs", settings.scaled_outputs, is_real_output)};
  for (const auto& [name, granularity] : settings.granularities) {
    if (!options.scaled_inputs.contains(name))
      throw Error(ErrorCode::invalid_argument,
                  "granularities: expected one of scaled_inputs, got '{}'", name);
    const Shape& shape = graph.type(graph.find_input(name)->value).shape;
    if (granularity != "tensor")
      options.granularities[name] = axis_of("granularities", granularity, shape);
  }
  for (const auto* names : {&options.scaled_inputs, &options.scaled_outputs}) {
    for (const std::string& name : *names) {
      const std::string scale = scale_name(name);
      if (graph.find_input(scale) != nullptr || graph.find_output(scale) != nullptr)
        throw Error(ErrorCode::invalid_argument, "expected no '{}' beside a scaled '{}', got one",
                    scale, name);
    }
  }
  return options;
}

std::vector<Shape> scale_shapes(const Scalified& scalified) {
  std::vector<Shape> shapes;
  shapes.reserve(scalified.factor.size());
  for (const ValueId factor : scalified.factor)
    shapes.push_back(factor == kNoValue ? Shape{} : scalified.graph.type(factor).shape);
  return shapes;
}

ValueId delayed_rescale(Graph& graph, ValueId x, const std::string& site, const std::string& norm,
                        const std::string& direction) {
  expect_value(graph, x, "delayed_rescale");
  Builder builder(graph);
  return delayed_rescale(builder, x, site,
                         {.norm = named<RescaleNorm>("norm", norm),
                          .direction = named<Direction>("direction", direction)});
}

ValueId periodic_rescale(Graph& graph, ValueId x, const std::string& site, int64_t calls,
                         const std::string& norm) {
  expect_value(graph, x, "periodic_rescale");
  if (calls < 1 || calls > (1 << 24))
    throw Error(ErrorCode::invalid_argument,
                "periodic_rescale: expected from 1 to {} calls, got {}", 1 << 24, calls);
  Builder b(graph);
  const TensorType number{.dtype = graph.phase == Phase::logical ? Dtype::real : Dtype::f32,
                          .shape = {}};
  const ValueId kept = b.state(StateUse::rescale_factor, site, number);
  const ValueId count = b.state(StateUse::rescale_factor, site + ".calls", number);
  const auto parts = b.emit(OpCode::data_scale, NoAttrs{}, {x});
  const ValueId power =
      ops::scale::norm_power(b, parts[DataScale::data], named<RescaleNorm>("norm", norm));
  const ValueId measured = b.mul(parts[DataScale::scale], power);
  const ValueId is_due = b.less(count, b.fill({}, 0.5));
  const ValueId scale = b.select(is_due, measured, kept);
  const ValueId y = b.emit1(OpCode::set_scale, ScaleAttrs{}, {x, scale});
  const ValueId after = b.plus(count, 1);
  const ValueId is_last = b.less(b.fill({}, static_cast<double>(calls) - 0.5), after);
  b.next(kept, scale);
  b.next(count, b.select(is_last, b.fill({}, 0), after));
  return y;
}

// Sums are f32, whatever the recipe computes in.
ValueId axis_rescale(Graph& graph, ValueId x, const std::string& granularity,
                     const std::string& norm) {
  expect_value(graph, x, "axis_rescale");
  const Shape shape = graph.type(x).shape;
  const bool is_row = axis_of("axis_rescale", granularity, shape).kind == Granularity::Kind::row;
  const auto size_by = named<RescaleNorm>("norm", norm);
  const int64_t axis = is_row ? 1 : 0, n = std::max<int64_t>(1, shape[is_row ? 1 : 0]);
  Builder b(graph);
  const auto parts = b.emit(OpCode::data_scale, NoAttrs{}, {x});
  const ValueId data = b.cast(b.unary(OpCode::abs, parts[DataScale::data]), Dtype::f32);
  ValueId size = kNoValue;
  if (size_by == RescaleNorm::max) {
    size = b.reduce_max(data, {axis});
  } else if (size_by == RescaleNorm::l1) {
    size = b.scaled(b.reduce_sum(data, {axis}), 1.0 / static_cast<double>(n));
  } else {
    const ValueId root_mean = b.scaled(data, 1 / std::sqrt(static_cast<double>(n)));
    size = b.unary(OpCode::sqrt, b.reduce_sum(b.unary(OpCode::square, root_mean), {axis}));
  }
  const ValueId scale = b.broadcast(parts[DataScale::scale], b.shape(size), {});
  const Shape of_axis = is_row ? Shape{shape[0], 1} : Shape{1, shape[1]};
  const ValueId power = b.unary(OpCode::power_of_two, size);
  return b.emit1(OpCode::set_scale, ScaleAttrs{}, {x, b.reshape(b.mul(scale, power), of_axis)});
}

ValueId scaled_by(Graph& graph, const std::function<ValueId(const ValueIds& inputs)>& f,
                  const ValueIds& inputs, const ScaleRuleOnIds& rule,
                  const std::vector<ScaleRuleOnIds>& gradients) {
  for (const ValueId id : inputs) expect_value(graph, id, "custom_scale");
  if (!gradients.empty() && gradients.size() != inputs.size())
    throw Error(ErrorCode::invalid_argument, "custom_scale: expected {} gradients' rules, got {}",
                inputs.size(), gradients.size());
  Builder b(graph);
  ValueIds scales, all = inputs;
  for (const ValueId id : inputs)
    scales.push_back(b.emit(OpCode::data_scale, NoAttrs{}, {id})[DataScale::scale]);
  // A one that has the scale of a program; its power in a rule is 1.
  const auto add_scale = [&](const ScaleRuleOnIds& program) {
    const ValueId scale = program(scales);
    expect_value(graph, scale, "custom_scale");
    const ValueId one = b.fill({}, 1);
    all.push_back(b.emit1(OpCode::set_scale, ScaleAttrs{}, {one, scale}));
  };
  add_scale(rule);
  for (const ScaleRuleOnIds& program : gradients) add_scale(program);
  CustomScaleRules rules{.result = {.powers = Shape(all.size(), 0)}};
  rules.result.powers[inputs.size()] = 1;
  for (size_t i = 0; i < (gradients.empty() ? 0 : all.size()); ++i) {
    ScaleMonomial of{.powers = Shape(all.size() + 1, 0)};
    of.powers[0] = 1;
    if (i < inputs.size()) of.powers[inputs.size() + 2 + i] = 1;
    rules.gradients.push_back(of);
  }
  const SubGraph inner = [&](Builder&, const ValueIds& inside) {
    const ValueId y = f({inside.begin(), inside.begin() + std::ssize(inputs)});
    expect_value(graph, y, "custom_scale");
    return y;
  };
  return custom_scale(b, inner, all, rules);
}

void add_debug_output(Graph& graph, const std::string& name, ValueId value) {
  expect_value(graph, value, name);
  Builder b(graph);
  const auto parts = b.emit(OpCode::data_scale, NoAttrs{}, {value});
  const std::string output = std::string(kDebugOutput) + name;
  add_output(graph, output, parts[DataScale::data]);
  add_output(graph, scale_name(output), parts[DataScale::scale]);
}

}  // namespace octet
