// AdamW as a graph builder: appends the global norm and one adamw_step per parameter to a typed
// graph.
//
// What a parameter's tensor holds, by name of the graph's input:
//   "<parameter>"                     the weight that forward and backward read
//   "master:<parameter>"              bf16_remainder: i16 such that (bits(weight) << 16) +
//   remainder
//                                     are the f32 master's bits; fp32 with a narrower weight: the
//                                     f32 master; fp16_scaled: FP16 of the master divided by the
//                                     scale that "fixed_scale:<parameter>.w" holds (0: none yet,
//                                     kFirstMasterScale), a power of two that is made anew of the
//                                     amax of each step's weights; bf16_sr, fp16_sr and f32
//                                     weights have none
//   "adam_m:", "adam_v:"              moments, f32, bf16 or codes; or FP16 of the moment divided
//                                     by the scale that "fixed_scale:<parameter>.m" (.v) holds,
//                                     a power of two: of the first step's predicted gradient g,
//                                     g for m and g^2 for v. Computed in f32, stored once,
//                                     stochastically; a positive v stays positive
//   "adam_m_meta:", "adam_v_meta:"    u32[ceil(n / group)] of moments that are codes
// Step scalars "lr", "adam_c1" = 1 - beta1^t, "adam_c2" = 1 - beta2^t and "clip" (0: no clipping)
// are inputs, and, where anything is drawn, "attempt": the attempted step, u32.
// Without clipping each parameter has c1 and c2 of its own (own_scalar_name), for t is the number
// of its updates.
// Outputs "grad_norm" and "found_nonfinite" are appended, and every state's next value as an update
// of its input; without clipping also "nonfinite:<parameter>", whether that tensor was skipped.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/named_enum.h"
#include "ir/builder.h"
#include "optim/state_format.h"

namespace octet {

enum class Master : uint8_t { fp32, bf16_remainder, bf16_sr, fp16_sr, fp16_scaled };
constexpr auto value_names(Master) {
  return name_list("fp32", "bf16_remainder", "bf16_sr", "fp16_sr", "fp16_scaled");
}

// none: no update waits for another gradient (gradient release). A gradient that is not finite, or
// that was made after a quantizer met what is not finite (its codes may look finite), leaves its
// own tensor as it was and sets "found_nonfinite". "clip" must then be 0.
enum class Clipping : uint8_t { global_norm, none };

// Without clipping, when updates run. at_end: behind the judgement of every gradient, so that what
// was not finite can be looked for while no tensor is changed yet. The bits are the same.
enum class Release : uint8_t { when_ready, at_end };

// Muon's factor of an orthogonal update: as wide as AdamW's steps are, 0.2 sqrt(max(rows, cols)),
// so that one learning rate serves both; or sqrt(max(1, outputs / inputs)).
enum class MuonScale : uint8_t { match_adamw, original };
constexpr auto value_names(MuonScale) {
  return name_list("match_adamw", "original");
}

// Parameters whose names match take this rule, with a factor of the learning rate.
struct OptimRule {
  std::string pattern;
  UpdateKind kind = UpdateKind::adamw;
  double lr = 1;
};

struct OptimPolicy {
  UpdateKind kind = UpdateKind::adamw;   // muon: of the layers' matrices, adamw of all else
  std::vector<OptimRule> rules = {};     // the last that matches wins over `kind`
  double momentum = 0.9, dampening = 0;  // of sgd; of muon, momentum alone
  bool nesterov = false;
  MuonScale muon_scale = MuonScale::match_adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  Master master = Master::bf16_remainder;
  StateFormat state_m = {}, state_v = {};
  int64_t group = 128;    // elements of one group of an 8-bit moment
  int64_t f32_below = 0;  // moments of tensors with fewer elements are f32
  PowerMath math = PowerMath::fast;
  uint32_t seed = 0;  // of stochastic rounding
  Clipping clipping = Clipping::global_norm;
  Release release = Release::when_ready;
  // log2 of the RMS that a parameter's gradient is predicted to have: of moments in FP16.
  std::map<std::string, double> gradient_rms = {};
  // Further factors of parameters' learning rates, but not of adamw's decay; absent: 1.
  std::map<std::string, double> lr_factors = {};
  double lr_factor(const std::string& parameter) const {
    const auto at = lr_factors.find(parameter);
    return at == lr_factors.end() ? 1 : at->second;
  }
  std::set<std::string> in_out = {};  // weights of linears that lie as [inputs, outputs]
  bool stores_scaled() const { return is_scaled(state_m) || is_scaled(state_v); }
};

// The master of adamw_step with this name (fp32, bf16_remainder, bf16_sr); Error{invalid_argument}
// for another.
Master master_from_name(std::string_view name);

// The policy, and that of tensors whose moments stay f32 since they are small (f32_below).
class PolicyBySize {
 public:
  explicit PolicyBySize(const OptimPolicy& policy);
  const OptimPolicy& of(int64_t n_elems) const {
    return n_elems < large_.f32_below ? small_ : large_;
  }

 private:
  OptimPolicy large_, small_;
};
// Type of what is kept beside the weight; absent_type() where the weight is its own master.
TensorType master_type(const TensorType& weight, const OptimPolicy& policy);

// Name of a rule's scalar, the one of one parameter.
std::string own_scalar_name(std::string_view scalar, std::string_view parameter);
// The scalar of such a name, or of a common one, and the parameter, empty where it is common.
std::pair<std::string_view, std::string_view> parameter_of_scalar(std::string_view name);

struct UpdateItem {
  std::string parameter;
  ValueId weight = kNoValue;
  ValueId gradient = kNoValue;
  bool decay = true;
  UpdateKind rule = UpdateKind::adamw;
  double lr = 1;  // a factor of the step's learning rate
};

// `flag`: another reason to refuse the step (a bool scalar), or kNoValue. Without clipping an
// update heeds, of the flags that an any_of joins in it, those that are known when its gradient is.
// `loss_scale`: f32[], a power of two that the gradients are to be divided by, or kNoValue; wants
// Clipping::global_norm. The norm handed out is that of the gradients divided by it.
struct StepGuards {
  ValueId flag = kNoValue, loss_scale = kNoValue;
};
void build_update(Builder& builder, const std::vector<UpdateItem>& items, const OptimPolicy& policy,
                  const StepGuards& guards = {});

}  // namespace octet
