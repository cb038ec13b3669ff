// Cases of any size, as data, and their run: the GPU against the CPU's reference kernels in every
// high-precision type.
#pragma once

#include <limits>

#include "compile/lower.h"
#include "gpu.h"
#include "property/fusion/run.h"

namespace octet::fusion {

using namespace op_cases;

enum class Specials : uint8_t { none, nonfinite, largest };  // largest: near the end of f32

struct SizedCase {
  OpCase c;
  double tolerance = 0;  // of an f32 result, relative to the largest value; 0: all bits
  Specials specials = Specials::none;
};

class Table {
 public:
  void put(OpCode op, Attrs attrs, std::vector<OperandCase> operands, double tolerance = 0,
           std::vector<ResultType> results = {}) {
    OpCase c{.name = std::string(op_def(op).name) + " " + std::to_string(cases.size()),
             .op = op,
             .attrs = std::move(attrs),
             .operands = std::move(operands),
             .typed_only = true,
             .results = std::move(results)};
    cases.push_back({std::move(c), tolerance});
  }
  void put_codes(OpCode op, const Attrs& attrs, const std::vector<OperandCase>& operands,
                 const std::vector<ResultType>& results) {
    put(op, attrs, operands, 0, results);
  }
  void put_nonfinite(OpCode op, const Attrs& attrs, const std::vector<OperandCase>& operands,
                     const std::vector<ResultType>& results = {}) {
    put_codes(op, attrs, operands, results);
    put_codes(op, attrs, operands, results);
    cases.back().specials = Specials::nonfinite;
  }
  void put_largest(OpCode op, const Attrs& attrs, const std::vector<OperandCase>& operands,
                   const std::vector<ResultType>& results) {
    put_codes(op, attrs, operands, results);
    cases.back().specials = Specials::largest;
  }
  std::vector<SizedCase> cases;
};

// The CPU's reference kernels, of what a node decomposes into where it has none.
inline Tensors run_reference(Graph graph, const Tensors& inputs) {
  graph.phase = Phase::lowered;
  return run_plan(lower(graph, *scalar_backend().catalogue), inputs, scalar_backend());
}

// NaN, Inf and a stretch of zeros among the first operand's values.
inline void put_specials(std::vector<double>& values) {
  if (values.empty()) return;
  const size_t n = values.size();
  for (size_t i = n / 2; i < std::min(n, n / 2 + 40); ++i) values[i] = 0;
  values[n / 3] = std::numeric_limits<double>::quiet_NaN();
  values[n / 5] = std::numeric_limits<double>::infinity();
  values[n - 1] = -std::numeric_limits<double>::infinity();
}

// Groups whose amax is the largest number or within some thousandths of it.
inline void put_largest(std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double below = 1 - 1e-6 * static_cast<double>(i / 7 * 7);
    values[i] = static_cast<float>(std::numeric_limits<float>::max() * below / (1 + i % 7));
    if (i % 2 != 0) values[i] = -values[i];
  }
}

inline constexpr double kMinHalf = 0x1p-24;  // the smallest fp16

inline double ulp_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? 0x1p-7 : dtype == Dtype::fp16 ? 0x1p-10 : 0;
}

inline void expect_close(const Graph& graph, const Tensors& actual, const Tensors& expected,
                         double tolerance, const std::string& what) {
  for (const GraphOutput& output : graph.outputs) {
    const auto& got = actual.at(output.name);
    const auto& want = expected.at(output.name);
    double largest = 0;
    for (const double w : want) largest = std::max(largest, std::abs(w));
    const double relative = ulp_of(graph.type(output.value).dtype);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_LE(std::abs(got[i] - want[i]),
                tolerance * largest + relative * std::abs(want[i]) + kMinHalf)
          << what << " " << output.name << "[" << i << "]: " << got[i] << ", expected " << want[i];
    }
  }
}

inline void run_table(const Table& table, Backend& gpu) {
  for (const SizedCase& sized : table.cases) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
      if (sized.specials == Specials::largest && dtype != Dtype::f32) continue;
      const Graph graph = case_graph(sized.c, dtype);
      const std::string what = std::string(dtype_name(dtype)) + "\n" + print(graph);
      ASSERT_TRUE(gpu.catalogue->choose(graph, graph.nodes[0]).has_value()) << what;
      Tensors inputs = case_inputs(sized.c, 3);
      if (sized.specials == Specials::nonfinite) put_specials(inputs.begin()->second);
      if (sized.specials == Specials::largest) put_largest(inputs.begin()->second);
      const Tensors fast = run_plan(graph, inputs, gpu);
      const Tensors slow = run_reference(graph, inputs);
      if (sized.tolerance == 0) {
        expect_same(fast, slow, what);
      } else {
        expect_close(graph, fast, slow, sized.tolerance, what);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace octet::fusion
