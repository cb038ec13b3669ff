// Op cases as data: shapes, attributes and ranges of values, for parity of kernels, gradients and
// decompositions.
//
//   for (const OpCase& c : op_cases()) {
//     const Graph graph = case_graph(c);              // the op is the last node; inputs "in0",
//     "in1", ...; outputs "out0", ... const Tensors inputs = case_inputs(c, seed);    // by the
//     same names const Tensors expected = reference::interpret(graph, inputs);
//   }
// Values are never all zeros. A gradient op's statistics (rstd, lse, o) are made by its forward op,
// so they fit its inputs.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "backends/cpu/reference/reference.h"
#include "ir/graph.h"
#include "ir/op_def.h"

namespace octet::op_cases {

enum class Fill : uint8_t {
  normal,      // N(0, 1)
  positive,    // [0.25, 2)
  negative,    // (-2, -0.25]
  wide,        // N(0, 20)
  distinct,    // spread out in a shuffled order: no two equal, none within 0.1 of 0 (for kinks and
               // maxima)
  ids,         // integers in [0, bound)
  labels,      // integers in [-1, bound): a quarter are -1
  any_ids,     // integers in [-2, bound + 2): some outside
  positions,   // 0, 1, 2, ...
  doc_starts,  // where in a sequence of `bound` the document of each place begins
  doc_ends,    // and where it ends
  key_ends,    // `value` everywhere, at most `bound`
  boolean,     // 0 and 1 mixed
  constant,    // `value` everywhere
  remainder,   // i16, the whole range
  derived,     // a result of another op on earlier operands
};

// A result of `op` (with the case's attributes) applied to operands of the case; -1: none there.
struct Derived {
  OpCode op = OpCode::neg;
  std::vector<int> operands = {};
  int result = 0;
};

struct OperandCase {
  TensorType type;  // real: the float dtype that the user of the case chooses
  Fill fill = Fill::normal;
  int64_t bound = 0;
  double value = 0;
  Derived derived = {};
  bool absent = false;
  bool f32_only = false;  // a statistic or a step scalar: f32 in a typed graph
  bool is_known = false;  // a constant of the graph, `value`, and no input
};

// How close a kernel that accumulates in f32 comes, relative to the largest magnitude of the
// result.
enum class Tolerance : uint8_t { exact, elementwise, reduction };

struct OpCase {
  std::string name;  // "rms_norm_ragged"
  OpCode op = OpCode::neg;
  Attrs attrs = NoAttrs{};
  std::vector<OperandCase> operands = {};
  Tolerance tolerance = Tolerance::elementwise;
  // Float operands through which, by contract, no gradient flows.
  std::vector<int> no_gradient = {};
  bool as_others = false;                // the CPU's fast kernels have it as other ops alone
  bool typed_only = false;               // it has no meaning in the Logical phase: codes and scales
  std::vector<ResultType> results = {};  // the first of them, where the case says what they are
};

using Cases = std::vector<OpCase>;

// Types that a node says: floats are `dtype`, statistics f32, the first results as `said` where
// that is quantized. What lies transposed beside the first is padded to 16 unless it is said too.
std::vector<ResultType> said_types(OpCode op, Dtype dtype, const std::vector<ResultType>& said);

inline OperandCase tensor(Shape shape, Fill fill = Fill::normal) {
  return {.type = {.dtype = Dtype::real, .shape = std::move(shape)}, .fill = fill};
}
inline OperandCase integers(Shape shape, Fill fill, int64_t bound) {
  return {.type = {.dtype = Dtype::i32, .shape = std::move(shape)}, .fill = fill, .bound = bound};
}
inline OperandCase booleans(Shape shape) {
  return {.type = {.dtype = Dtype::boolean, .shape = std::move(shape)}, .fill = Fill::boolean};
}
inline OperandCase scalar(double value, Dtype dtype = Dtype::real) {
  return {.type = {.dtype = dtype, .shape = {}},
          .fill = Fill::constant,
          .value = value,
          .f32_only = dtype == Dtype::real};
}
inline OperandCase derived(Shape shape, Derived from) {
  return {.type = {.dtype = Dtype::real, .shape = std::move(shape)},
          .fill = Fill::derived,
          .derived = std::move(from)};
}
inline OperandCase statistic(Shape shape, Derived from) {
  OperandCase result = derived(std::move(shape), std::move(from));
  result.f32_only = true;
  return result;
}
inline OperandCase none() {
  return {.type = {}, .absent = true};
}

inline OperandCase typed(Shape shape, Dtype dtype, Fill fill) {
  return {.type = {.dtype = dtype, .shape = std::move(shape)}, .fill = fill};
}
inline OperandCase quantized(Shape shape, Dtype dtype, const Granularity& by) {
  OperandCase operand = typed(std::move(shape), dtype, Fill::wide);
  operand.type.granularity = by;
  return operand;
}
// `by`: as a type says it, "1x16" for instance.
inline OperandCase codes(Shape shape, Dtype dtype = Dtype::e4m3, std::string_view by = "tensor") {
  return quantized(std::move(shape), dtype, find_granularity(by).value());
}
inline OperandCase scales(Shape shape, Dtype dtype = Dtype::f32) {
  return typed(std::move(shape), dtype, Fill::positive);
}
inline OperandCase scales_of(const OperandCase& x) {
  const TensorType type = scale_type(x.type);
  return scales(type.shape, type.dtype);
}
inline OperandCase filled(Shape shape, Dtype dtype, double value) {
  OperandCase operand = typed(std::move(shape), dtype, Fill::constant);
  operand.value = value;
  return operand;
}
inline void put_typed(Cases& all, std::string name, OpCode op, Attrs attrs,
                      std::vector<OperandCase> operands, std::vector<ResultType> results = {}) {
  all.push_back({.name = std::move(name),
                 .op = op,
                 .attrs = std::move(attrs),
                 .operands = std::move(operands),
                 .tolerance = Tolerance::reduction,
                 .typed_only = true,
                 .results = std::move(results)});
}
inline void put_as_others(Cases& all, std::string name, OpCode op, Attrs attrs,
                          std::vector<OperandCase> operands, std::vector<ResultType> results = {}) {
  put_typed(all, std::move(name), op, std::move(attrs), std::move(operands), std::move(results));
  all.back().as_others = true;
}

inline OperandCase lying_transposed(OperandCase operand) {
  operand.type.layout = {.transposed = true};
  return operand;
}

// True of begins and ends of attention's ranges of keys: neither falls within a sequence.
inline bool is_key_range(Fill fill) {
  return fill == Fill::doc_starts || fill == Fill::doc_ends || fill == Fill::key_ends;
}

// Every case of every op; an op has at least one.
const Cases& op_cases();

// Has the case no Logical form?
bool is_typed(const OpCase& c);
// The case as a graph: Logical where `dtype` is real, else Typed with floats of `dtype`, statistics
// and step scalars f32. A case that fixes a storage dtype itself (a remainder) is Typed always.
Graph case_graph(const OpCase& c, Dtype dtype = Dtype::real);
reference::Tensors case_inputs(const OpCase& c, uint64_t seed);
// Values of an operand that is not derived.
std::vector<double> fill_values(const OperandCase& o, std::mt19937_64& random);

inline std::string input_name(size_t i) {
  return "in" + std::to_string(i);
}
inline std::string output_name(size_t i) {
  return "out" + std::to_string(i);
}

}  // namespace octet::op_cases
