// Scales of a sub-graph's own, and states of delayed rescales: what a graph builder says of scales
// beyond one op (passes/scalify). Without that pass both mean the identity, at no cost.
#pragma once

#include <functional>
#include <string_view>

#include "ir/builder.h"

namespace octet {

// A rule: the scale 2^log2 times the product of given scales, each to its power.
struct ScaleMonomial {
  Shape powers;
  int64_t log2 = 0;
};

struct CustomScaleRules {
  ScaleMonomial result;  // by the scales of the inputs
  // Scale of each input's gradient: by the scale of the result's gradient, then those of the
  // inputs. None: as the ops' own rules say.
  std::vector<ScaleMonomial> gradients = {};
};

using SubGraph = std::function<ValueId(Builder& builder, const ValueIds& inputs)>;

// f(inputs), whose result and whose gradients carry the scales of these rules; inside, and for what
// f reads besides, the ops' rules hold. The values are those of f. Throws Error(invalid_argument)
// where a rule has not one power for each scale.
ValueId custom_scale(Builder& builder, const SubGraph& f, const ValueIds& inputs,
                     const CustomScaleRules& rules);

// x rebalanced by the factor that the step before measured of its data (backward: of the gradient
// that comes back through here), which the state "rescale_factor:<site>" keeps. A step moves the
// factor by 2^4 at the most; data without a norm leave it alone.
ValueId delayed_rescale(Builder& builder, ValueId x, std::string_view site,
                        const DynamicRescaleAttrs& attrs = {});

}  // namespace octet
