// Scale propagation: what a scale rule sees and gives (OpDef::scale; passes/scalify applies them).
//
// A value X of the graph is carried as data Xd and a scale that is a power of two: X = Xd Xs, where
// Xs = 2^log2, times `factor` where there is one, a power of two that is known at run time alone. A
// rule emits the op on data and says the scale of its result. Source: Balanca et al. 2024
// (Scalify); the rules are docs/scalify.md's.
//
// `predicted` is log2 of the RMS that X has by the rules, not rounded: data are near 1 where log2
// is near `predicted`. Rules combine predictions as independent, centred values do. A choice of
// scale rounds it, and the rounding of one value's scale never enters another's prediction (but
// under ScaleRounding::paper, where it does).
#pragma once

#include <map>
#include <vector>

#include "ir/builder.h"

namespace octet {

struct Scaled {
  ValueId data = kNoValue;
  int log2 = 0;
  ValueId factor = kNoValue;  // f32[], or none
  double predicted = 0;
  // A constant that means the same at every scale (0, an infinity, NaN), and takes the scale of
  // what it meets.
  bool is_any = false;
};

// predicted: of values' predicted RMS, to the nearest power of two, a tie down. nearest, paper: of
// the scales themselves, to the nearest, and down as published.
enum class ScaleRounding : uint8_t { predicted, nearest, paper };

// What rules are written with. carry: whether data take scales at all; where not, every scale is 1
// and predictions alone are propagated.
class Scaler {
 public:
  Scaler(Builder& builder, ScaleRounding rounding, bool carries)
      : b(builder), rounding_(rounding), carries_(carries) {}

  Builder& b;

  // The scale that a value of this predicted RMS is given.
  int choose(double predicted) const;
  // x with another scale (no factor is left out of it): rescaled, where that changes it.
  Scaled at(const Scaled& x, int log2);
  // x as the value itself: scale 1, no factor.
  Scaled plain(const Scaled& x) { return at(without_factor(x), 0); }
  Scaled without_factor(const Scaled& x);
  // f32[] 2^log2; one node of the graph a power.
  ValueId constant(int log2);
  // f32[] 2^log2 times the factors; kNoValue where that is 1.
  ValueId multiplier(int log2, ValueId factor = kNoValue, ValueId other = kNoValue);
  // A result of data and scale, its prediction rounded where the rounding wants it.
  Scaled made(ValueId data, int log2, double predicted, ValueId factor = kNoValue) const;
  ScaleRounding rounding() const { return rounding_; }
  bool carries() const { return carries_; }

 private:
  ScaleRounding rounding_;
  bool carries_;
  std::map<int, ValueId> constants_;
};

// A rule's call: the node of the old graph, its operands as they are now (those that are absent or
// no floats have data alone), and the scale that the readers of a result want (a reader that wants
// the value itself), by slot.
struct ScaleCall {
  const Graph& graph;
  const Node& node;
  const std::vector<Scaled>& in;
  bool wants_plain = false;  // result 0 is read as the value itself

  const Scaled& operator[](size_t slot) const { return in[slot]; }
  const Shape& shape(size_t slot) const { return graph.type(node.in(slot)).shape; }
  std::vector<ValueId> data() const;  // of the operands, by slot
};

// log2 of the root of the sum of two squares.
double root_sum(double a, double b);
// log2 of sqrt(n).
double half_log2(double n);
// log2 of the RMS of f(2^sigma z), z normal.
double rms_of(double (*f)(double), double sigma);

}  // namespace octet
