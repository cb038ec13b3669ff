// Finds the first value that is not finite while plans run.
//
// A NonfiniteWatch sees every launch through a StepObserver (runtime/executor.h): before one, the
// graph's inputs that it reads; after one, all that it made. Codes count by what they decode to. A
// fused op that quantizes as it stores may keep the value itself to itself: then its flag, a bool
// scalar, is what tells. What is not watched pays nothing; a watched run reads all memory that it
// writes once more.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/executor.h"

namespace octet {

// The origin of a value that is not finite.
struct NonfiniteSite {
  enum class Cause : uint8_t {
    result,  // the op made `tensor`
    flag,    // the op saw one on the way to `tensor`, its flag
    input,   // `tensor`, an input of the graph, was like that before the op read it
  };
  Cause cause = Cause::result;
  std::string function = {};  // "step", "micro_first"
  int plan_step = 0;          // the launch, counted in that function's plan
  std::string op = {}, kernel = {};
  Tag tag = {};             // layer, role and origin of the op
  std::string tensor = {};  // name of an input or output of the graph, else "%12"
  TensorType type = {};
  int64_t n_nan = 0, n_inf = 0;
  int64_t first = 0;  // index of the first in row-major order
};

constexpr auto value_names(NonfiniteSite::Cause) {
  return name_list("result", "flag", "input");
}

// One line: "gemm in the forward pass of layer 3, up_proj, made %57 bf16[64,128] with 3 NaN and 1
// Inf, the first at 17 (launch 12 of step, gemm bf16 x bf16 -> f32)".
std::string to_string(const NonfiniteSite& site);

// How many elements are not finite; types that are no floats have none.
struct NonfiniteCount {
  int64_t n_nan = 0, n_inf = 0;
  int64_t first = -1;
  bool any() const { return n_nan + n_inf > 0; }
};
NonfiniteCount count_nonfinite(Dtype dtype, std::span<const std::byte> bytes);

class NonfiniteWatch {
 public:
  // Watches plans that are bound to these arenas.
  explicit NonfiniteWatch(Arenas& arenas) : arenas_(arenas) {}

  // Refers to this object.
  StepObserver observer();
  // The first one seen so far. Later ones follow from it and are not looked for.
  const std::optional<NonfiniteSite>& site() const { return site_; }

 private:
  void look(const Plan& plan, const PlanStep& step, bool before);
  void look_at_input(const Plan& plan, const PlanStep& step, ValueId id);
  void look_at_result(const Plan& plan, const PlanStep& step, ValueId id);
  void found(const Plan& plan, const PlanStep& step, NonfiniteSite site);

  Arenas& arenas_;
  std::set<ValueId> seen_;  // inputs of the plan that runs
  std::optional<NonfiniteSite> site_;
};

}  // namespace octet
