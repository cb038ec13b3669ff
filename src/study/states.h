// Adam's states in eight bits: what AdamW's direction loses (COAT's tables 1 and 8), how wide
// groups are before and after dynamic range expansion (its figure 2), which codes they then use
// (figures 3 and 9), and what rounding does to a moving average in the long run.
#pragma once

#include <functional>

#include "math/state_error.h"
#include "study/study.h"

namespace octet {

// One tensor's moments.
struct StatesOfTensor {
  std::string parameter;
  std::vector<float> m, v;
};

struct StatesStudyOptions {
  int64_t group = 128;
  double eps = 1e-8;
  int average_steps = 3000;
};

// A form of one moment that nothing but this study stores. is_companded: 8-bit integers of the
// value over the group's largest, of m through u = 2y / (1 + |y|), of v through u = sqrt(y). ratio:
// the R for which expansion chooses k in place of the format's (math/expansion.h).
struct StudiedForm {
  bool is_companded = false;
  double ratio = 0;
};
struct StateForm {
  std::string_view name;
  MomentKind kind;
  StudiedForm how = {};
};
inline constexpr size_t kStateForms = 10;
std::span<const StateForm, kStateForms> state_forms();
// The values of x once it is stored so and read again.
std::vector<float> store_and_load(const StateForm& form, Moment moment, int64_t group,
                                  std::span<const float> x);

// `next` gives one tensor after the other, nothing behind the last. Throws Error{bad_data} where
// there is none.
Study study_states(const std::function<std::optional<StatesOfTensor>()>& next,
                   const StatesStudyOptions& options);

// Mean of v' / v - 1 over the elements of four groups after so many steps of squares of normal
// gradients, v' stored after each step.
double bias_of_average(const MomentCoding& coding, float beta2, int steps);

}  // namespace octet
