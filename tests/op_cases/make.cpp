// Graphs and values of op cases.
#include <algorithm>
#include <cmath>
#include <random>

#include "ir/builder.h"
#include "op_cases/op_cases.h"

namespace octet::op_cases {
namespace {

std::vector<double> distinct_values(size_t n, std::mt19937_64& random) {
  std::vector<double> values(n);
  for (size_t i = 0; i < n; ++i) {
    const double step = static_cast<double>(i / 2 + 1) * (1.9 / static_cast<double>(n / 2 + 1));
    values[i] = i % 2 == 0 ? 0.1 + step : -0.13 - step;
  }
  std::shuffle(values.begin(), values.end(), random);
  return values;
}

bool begins_document(int64_t place) {
  return place == 0 || place % 7 == 3 || place % 7 == 4;
}

// The result that a derived operand names, by running its op on the operands before it.
std::vector<double> derived_values(const OpCase& c, size_t operand,
                                   const reference::Tensors& before) {
  const Derived& from = c.operands[operand].derived;
  Graph graph;
  Builder builder(graph);
  std::vector<ValueId> operands;
  for (const int i : from.operands) {
    const bool absent = i < 0 || c.operands[static_cast<size_t>(i)].absent;
    operands.push_back(absent ? kNoValue
                              : builder.input(InputKind::batch, input_name(static_cast<size_t>(i)),
                                              c.operands[static_cast<size_t>(i)].type));
  }
  const auto results = builder.emit(from.op, c.attrs, operands);
  builder.output("result", results[static_cast<size_t>(from.result)]);
  return reference::interpret(graph, before)["result"];
}

}  // namespace

std::vector<ResultType> said_types(OpCode op, Dtype dtype, const std::vector<ResultType>& said) {
  const OpDef& def = op_def(op);
  std::vector<ResultType> types(std::max<size_t>(8, def.results.size()), dtype);
  for (size_t i = 0; i < def.results.size(); ++i) {
    const bool is_statistic = def.statistics.contains(i);
    if (is_statistic) types[i] = Dtype::f32;
    if (i < said.size() && is_quantized(said[i].dtype)) types[i] = said[i];
    if (i < said.size() || said.empty()) continue;
    if (def.results[i].name == "dup") types[i] = said[0];
    if (def.results[i].name.ends_with("transposed"))
      types[i] = ResultType(said[0].dtype).transposed(16);
  }
  return types;
}

bool is_typed(const OpCase& c) {
  return c.typed_only ||
         std::any_of(c.operands.begin(), c.operands.end(), [](const OperandCase& o) {
           return is_float(o.type.dtype) && o.type.dtype != Dtype::real;
         });
}

Graph case_graph(const OpCase& c, Dtype dtype) {
  if (is_typed(c) && dtype == Dtype::real) dtype = Dtype::f32;
  Graph graph;
  graph.name = c.name;
  graph.phase = dtype == Dtype::real ? Phase::logical : Phase::typed;
  Builder builder(graph);
  std::vector<ValueId> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const OperandCase& o = c.operands[i];
    TensorType type = o.type;
    if (type.dtype == Dtype::real) {
      type.dtype = o.f32_only && dtype != Dtype::real ? Dtype::f32 : dtype;
    }
    const bool is_input = !o.absent && !o.is_known;
    operands.push_back(is_input ? builder.input(InputKind::parameter, input_name(i), type)
                                : kNoValue);
  }
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const OperandCase& o = c.operands[i];
    if (o.is_known) operands[i] = builder.fill(o.type.shape, o.value);
  }
  const auto results =
      builder.emit_typed(c.op, c.attrs, operands, said_types(c.op, dtype, c.results));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != kNoValue) builder.output(output_name(i), results[i]);
  }
  return graph;
}

std::vector<double> fill_values(const OperandCase& o, std::mt19937_64& random) {
  const auto n = static_cast<size_t>(o.type.n_elems());
  if (o.fill == Fill::distinct) return distinct_values(n, random);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0.25, 2);
  const auto integer = [&](int64_t low, int64_t high) {
    return static_cast<double>(std::uniform_int_distribution<int64_t>(low, high)(random));
  };
  std::vector<double> values(n);
  for (size_t i = 0; i < n; ++i) {
    switch (o.fill) {
      case Fill::wide:
        values[i] = 20 * normal(random);
        break;
      case Fill::positive:
        values[i] = uniform(random);
        break;
      case Fill::negative:
        values[i] = -uniform(random);
        break;
      case Fill::ids:
        values[i] = integer(0, o.bound - 1);
        break;
      case Fill::labels:
        values[i] = i % 4 == 1 ? -1 : integer(0, o.bound - 1);
        break;
      case Fill::any_ids:
        values[i] = integer(-2, o.bound + 1);
        break;
      case Fill::positions:
        values[i] = static_cast<double>(i);
        break;
      case Fill::doc_starts: {
        const auto at = static_cast<int64_t>(i) % o.bound;
        values[i] = begins_document(at) ? static_cast<double>(at) : values[i - 1];
        break;
      }
      case Fill::doc_ends: {
        int64_t end = static_cast<int64_t>(i) % o.bound + 1;
        while (end < o.bound && !begins_document(end)) ++end;
        values[i] = static_cast<double>(end);
        break;
      }
      case Fill::boolean:
        values[i] = i % 3 == 0 ? 1 : integer(0, 1);
        break;
      case Fill::constant:
      case Fill::key_ends:
        values[i] = o.value;
        break;
      case Fill::remainder:
        values[i] = integer(-32768, 32767);
        break;
      default:
        values[i] = normal(random);
        break;
    }
  }
  return values;
}

reference::Tensors case_inputs(const OpCase& c, uint64_t seed) {
  std::mt19937_64 random(seed * 1000003 + std::hash<std::string>()(c.name));
  reference::Tensors inputs;
  for (const bool derived : {false, true}) {
    for (size_t i = 0; i < c.operands.size(); ++i) {
      const OperandCase& o = c.operands[i];
      if (o.absent || o.is_known || (o.fill == Fill::derived) != derived) continue;
      inputs[input_name(i)] = derived ? derived_values(c, i, inputs) : fill_values(o, random);
    }
  }
  return inputs;
}

}  // namespace octet::op_cases
