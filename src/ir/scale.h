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
// under the other ScaleRoundings, where it does). What sets a scale outright (set_scale, a rescale)
// says that the data are near 1: it sets the prediction, too. Where there is a factor, `predicted`
// is that of X / factor.
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

// 2^log2, times `factor` where there is one.
struct Scale {
  int log2 = 0;
  ValueId factor = kNoValue;
};

// predicted: of values' predicted RMS, to the nearest power of two, a tie down. nearest, paper, up:
// of the scales themselves, to the nearest, down as published, and up.
enum class ScaleRounding : uint8_t { predicted, nearest, paper, up };
constexpr auto value_names(ScaleRounding) {
  return name_list("predicted", "nearest", "paper", "up");
}

// Operations that rules are written with. carry: whether data take scales at all; where not, every
// scale is 1 and predictions alone are propagated.
class Scaler {
 public:
  Scaler(Builder& builder, ScaleRounding rounding, bool carries)
      : b(builder), rounding_(rounding), carries_(carries) {}

  Builder& b;

  // The scale that a value of this predicted RMS is given.
  int choose(double predicted) const;
  // x at the scale 2^log2 times a factor (kNoValue: 1): rescaled once, where that changes it.
  Scaled to(const Scaled& x, const Scale& scale);
  // x with another constant scale (its factor stays).
  Scaled at(const Scaled& x, int log2) { return to(x, {log2, x.factor}); }
  Scaled without_factor(const Scaled& x) { return to(x, {x.log2}); }
  // x as the value itself: scale 1, no factor.
  Scaled unscaled(const Scaled& x) { return to(x, {}); }
  // The largest of these scales; where their factors differ, what is largest at run time.
  Scale largest(const std::vector<Scale>& scales);
  // f32[] 2^log2; one node of the graph a power.
  ValueId constant(int log2);
  // f32[] 2^log2 times the factors; kNoValue where that is 1.
  ValueId multiplier(int log2, ValueId factor = kNoValue, ValueId other = kNoValue);
  // Quotient of two factors, kNoValue for 1.
  ValueId quotient(ValueId factor, ValueId divisor);
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
  bool wants_unscaled = false;  // result 0 is read as the value itself

  const Scaled& operator[](size_t slot) const { return in[slot]; }
  const Shape& shape(size_t slot) const { return graph.type(node.in(slot)).shape; }
  ValueIds data() const;  // of the operands, by slot
};

// log2 of the root of the sum of two squares.
double root_sum(double a, double b);
// log2 of sqrt(n).
double half_log2(double n);
// log2 of the RMS of f(2^sigma z), z normal.
double rms_of(double (*f)(double), double sigma);

}  // namespace octet
