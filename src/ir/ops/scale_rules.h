// The scale rule of each op, by family: scale_rules_primitives.cpp, scale_rules_layers.cpp. What
// each expects of its operands: independent, centred normals; where another law is meant, it says
// so.
#pragma once

#include "ir/scale.h"

namespace octet::ops::scale {

using Scales = std::vector<Scaled>;

// The op on x's data has x's scale: a rearrangement, a sign, a linear map that keeps the RMS.
Scales same(Scaler& s, const ScaleCall& call);
// On values themselves; the result's RMS is near 1, or it is an integer or a boolean.
Scales of_values(Scaler& s, const ScaleCall& call);

Scales rescale(Scaler& s, const ScaleCall& call);
Scales cast_in(Scaler& s, const ScaleCall& call);
Scales add(Scaler& s, const ScaleCall& call);
Scales mul(Scaler& s, const ScaleCall& call);
Scales div(Scaler& s, const ScaleCall& call);
Scales compare(Scaler& s, const ScaleCall& call);
Scales largest(Scaler& s, const ScaleCall& call);  // of maximum, minimum, concatenate
Scales select(Scaler& s, const ScaleCall& call);
Scales square(Scaler& s, const ScaleCall& call);
Scales root(Scaler& s, const ScaleCall& call);
Scales inverse_root(Scaler& s, const ScaleCall& call);
Scales fill(Scaler& s, const ScaleCall& call);
Scales pad(Scaler& s, const ScaleCall& call);
Scales reduce_sum(Scaler& s, const ScaleCall& call);
Scales dot(Scaler& s, const ScaleCall& call);
Scales scatter_add(Scaler& s, const ScaleCall& call);

Scales set_scale(Scaler& s, const ScaleCall& call);
Scales rebalance(Scaler& s, const ScaleCall& call);
Scales dynamic_rescale(Scaler& s, const ScaleCall& call);
Scales delayed_rescale(Scaler& s, const ScaleCall& call);
Scales custom_scale(Scaler& s, const ScaleCall& call);
Scales data_scale(Scaler& s, const ScaleCall& call);

Scales gemm(Scaler& s, const ScaleCall& call);
Scales bias_add(Scaler& s, const ScaleCall& call);
Scales column_sum(Scaler& s, const ScaleCall& call);
Scales rms_norm(Scaler& s, const ScaleCall& call);
Scales rms_norm_grad(Scaler& s, const ScaleCall& call);
Scales layer_norm(Scaler& s, const ScaleCall& call);
Scales layer_norm_grad(Scaler& s, const ScaleCall& call);
Scales attention(Scaler& s, const ScaleCall& call);
Scales attention_grad(Scaler& s, const ScaleCall& call);
Scales gated_act(Scaler& s, const ScaleCall& call);
Scales gated_act_grad(Scaler& s, const ScaleCall& call);
Scales gelu(Scaler& s, const ScaleCall& call);
Scales gelu_grad(Scaler& s, const ScaleCall& call);
Scales cross_entropy(Scaler& s, const ScaleCall& call);
Scales cross_entropy_grad(Scaler& s, const ScaleCall& call);

// x by its norm of the data, rounded to a power of two: the same value with another factor.
Scaled rescaled_by_norm(Scaler& s, const Scaled& x, RescaleNorm norm);

}  // namespace octet::ops::scale
