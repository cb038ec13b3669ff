// Facts of ops that only one pass reads, beside what the reference kernels compute: one that is
// taken away, or given to an op that lacks it, fails here.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "ir/op_def.h"
#include "math/elementwise.h"

namespace octet::cpu_op_facts_test {
namespace {

constexpr double kSome[] = {-3, -0.5, 0.25, 2, 7};

using Function = double (*)(double, double);

// True if f(x, unit) is x, with `left` f(unit, x).
bool keeps(Function f, double unit, bool left) {
  for (const double x : kSome) {
    if ((left ? f(unit, x) : f(x, unit)) != x) return false;
  }
  return true;
}

void expect_unit(const OpDef& def, Function f) {
  std::optional<double> unit;
  for (const double number : {0.0, 1.0}) {
    if (keeps(f, number, false)) unit = number;
  }
  EXPECT_EQ(def.unit, unit) << def.name;
  EXPECT_EQ(def.commutes, unit && keeps(f, *unit, true)) << def.name;
}

enum class Arity { unary, binary, scaled, compare };

TEST(OpFacts, units_and_commuting_ops_are_those_of_the_functions) {
  size_t n = 0;
#define ELEMENT(op, arity, computes_in, value)                                         \
  if (Arity::arity == Arity::binary) {                                                 \
    expect_unit(op_def(OpCode::op), [](double a, double b) { return op##_of(a, b); }); \
    ++n;                                                                               \
  }
#include "math/elementwise.def"
  EXPECT_EQ(n, 6u);
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    EXPECT_TRUE(def.unit || !def.commutes) << def.name;
  }
}

// A GPU computes them in f64; a power of two is chosen, not computed.
TEST(OpFacts, transcendental_ops_are_the_functions_that_are_computed_in_f64) {
  enum class Computes { f32, f64 };
  std::set<std::string_view> expected, marked;
#define ELEMENT(op, arity, computes_in, value)                                  \
  if (Arity::arity == Arity::unary && Computes::computes_in == Computes::f64 && \
      OpCode::op != OpCode::power_of_two)                                       \
    expected.insert(#op);
#include "math/elementwise.def"
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    if (def.is_transcendental) marked.insert(def.name);
  }
  EXPECT_EQ(marked, expected);
}

// Primitives that data and scales go through have a rule of their error as well.
TEST(OpFacts, a_primitive_of_floats_has_a_rule_of_its_error) {
  const std::set<std::string_view> of_no_float = {"less",  "less_equal", "greater", "greater_equal",
                                                  "equal", "not_equal",  "argmax",  "update"};
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    if (def.decompose != nullptr || def.scale == nullptr) continue;
    EXPECT_EQ(def.error == nullptr, of_no_float.contains(def.name)) << def.name;
  }
}

}  // namespace
}  // namespace octet::cpu_op_facts_test
