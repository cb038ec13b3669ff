// Rotary positions, and the layers of a RotaryDecoder.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/rotary_decoder.h"
#include "nn/shape.h"

namespace octet {
namespace {

// Elements 0, 2, ... of each head, then 1, 3, ...
ValueId halves_of_pairs(Builder& b, ValueId x, int64_t heads) {
  const Shape shape = b.shape(x);
  const int64_t pairs = shape[1] / heads / 2;
  const ValueId apart = b.reshape(x, {shape[0] * heads, pairs, 2});
  return b.reshape(b.transpose(apart, {0, 2, 1}), shape);
}

constexpr double kQuickGelu = 1.702;  // CLIP's

ValueId times(Builder& b, ValueId x, double factor) {
  return factor == 1 ? x : b.scaled(x, factor);
}

}  // namespace

// True if this layer's queries and keys are rotated.
bool Blocks::has_positions() const {
  const ModelDef& def = model_def(spec_.kind);
  const int64_t every = spec_.no_rope_every;
  if (def.positions != Positions::rotary || (every != 0 && (in_stack_ + 1) % every == 0))
    return false;
  const bool is_any = def.rotated == RotatedLayers::all ||
                      (def.rotated == RotatedLayers::windows_if_any && spec_.sliding_window == 0);
  return is_any || has_window(spec_, in_stack_);
}

// True if the angles of layers with a window are their own, and this is one.
bool Blocks::has_own_angles() const {
  return find_hf_key(model_def(spec_.kind), "window_rope_theta") != nullptr &&
         has_window(spec_, in_stack_);
}

// Factor of rotated queries and of rotated keys.
double Blocks::rotary_factor() const {
  const bool is_scaled =
      spec_.rope_scaling == RopeScaling::yarn || spec_.rope_scaling == RopeScaling::longrope;
  return is_scaled && has_positions() && !has_own_angles() ? spec_.rope_attention_factor : 1;
}

RopeAttrs Blocks::rope_attrs(int64_t heads, int64_t width) const {
  if (has_own_angles())
    return {.heads = heads, .head_dim = width, .theta = spec_.window_rope_theta};
  const bool is_dynamic = spec_.rope_scaling == RopeScaling::dynamic;
  const int64_t seq = spec_.rope_seq > 0 ? spec_.rope_seq : batch_.seq;
  if (is_dynamic && batch_.seq > std::max(seq, spec_.max_positions)) {
    throw Error(ErrorCode::invalid_argument,
                "[model] rope_scaling.type: dynamic is fixed at the run's sequence: expected at "
                "most {} tokens, got {}",
                std::max(seq, spec_.max_positions), batch_.seq);
  }
  RopeAttrs attrs = {
      .heads = heads,
      .head_dim = width,
      .theta = spec_.rope_theta,
      .scaling = spec_.rope_scaling,
      .factor = spec_.rope_factor,
      .low_freq_factor = spec_.rope_low_freq_factor,
      .high_freq_factor = spec_.rope_high_freq_factor,
      .original_max_position = is_dynamic ? spec_.max_positions : spec_.rope_original_max_position,
      .seq = is_dynamic ? seq : 0,
      .beta_fast = spec_.rope_beta_fast,
      .beta_slow = spec_.rope_beta_slow,
      .truncate = spec_.rope_truncate};
  if (spec_.rope_scaling == RopeScaling::longrope) {
    const int64_t room = std::max(batch_.seq, batch_.cache);
    attrs.divisors =
        room > spec_.rope_original_max_position ? spec_.rope_long_factor : spec_.rope_short_factor;
  }
  return attrs;
}

ValueId Blocks::rope(ValueId x, int64_t heads, RotaryPairs pairs) {
  module("rotary_emb");
  const int64_t width = rotary_width(spec_), rest = spec_.head_dim - width;
  if (width == 0 || !has_positions()) return x;
  const RopeAttrs attrs = rope_attrs(heads, width);
  const auto rotated = [&](ValueId part) {
    if (pairs == RotaryPairs::neighbours) part = halves_of_pairs(builder_, part, heads);
    return builder_.emit1(OpCode::rope, attrs, {part, input("positions")});
  };
  if (rest == 0) return rotated(x);
  const ValueId apart = split_rows(x, heads);
  const ValueId turned =
      times(builder_, rotated(join_rows(columns(apart, 0, width), heads)), rotary_factor());
  const ValueId whole =
      builder_.concatenate({split_rows(turned, heads), columns(apart, width, rest)}, 1);
  return join_rows(whole, heads);
}

// Window of this layer's attention; 0 where each query sees all keys before it.
int64_t Blocks::window() const {
  const int64_t context = std::max(batch_.seq, batch_.cache);
  const bool is_seen = has_window(spec_, in_stack_) && spec_.sliding_window < context;
  return is_seen ? spec_.sliding_window : 0;
}

ValueId Blocks::clipped(ValueId x) {
  if (spec_.clip_qkv == 0) return x;
  const ValueId below = builder_.minimum(x, builder_.fill_like(x, spec_.clip_qkv));
  return builder_.maximum(below, builder_.fill_like(x, -spec_.clip_qkv));
}

// q times 1 + beta log(1 + n), n the whole original lengths before its position: a sum of steps, in
// single precision, since eight bits hold no odd position above 256.
ValueId Blocks::scaled_by_position(ValueId q) {
  const int64_t room = std::max(batch_.seq, batch_.cache);
  const int64_t original = spec_.rope_original_max_position;
  if (spec_.llama4_beta == 0 || room <= original) return q;
  constexpr int64_t kMaxSteps = 256;
  if (room / original > kMaxSteps) {
    throw Error(ErrorCode::invalid_argument,
                "[model] rope_scaling.llama_4_scaling_beta: expected sequences of at most {} x "
                "original_max_position = {} tokens, got {}",
                kMaxSteps, original, room);
  }
  const ValueId positions = in_f32(builder_.unary(OpCode::cast, input("positions")));
  const ValueId none = builder_.fill_like(positions, 0), one = builder_.fill_like(positions, 1);
  ValueId factor = one;
  for (int64_t n = 1; n * original < room; ++n) {
    const auto count = static_cast<double>(n);
    const double before = 1 - count * static_cast<double>(original);
    const ValueId above = builder_.maximum(builder_.plus(positions, before), none);
    const double step = spec_.llama4_beta * (std::log(1 + count) - std::log(count));
    factor = builder_.add(factor, builder_.scaled(builder_.minimum(above, one), step));
  }
  return builder_.mul(q, builder_.broadcast(factor, shape(q), {0}));
}

ValueId Blocks::rotary_attention(ValueId x, const RotaryDecoder& decoder) {
  const int64_t width = spec_.head_dim, n_q = spec_.heads * width, n_kv = spec_.kv_heads * width;
  const WithBias bias = bias_if(spec_.attention_bias || decoder.qkv_bias == WithBias::yes);
  const auto normed = [&](ValueId y, std::string_view norm, int64_t heads) {
    if (decoder.qk_norm == QkNorm::none) return y;
    if (decoder.qk_norm == QkNorm::projection) return (this->*decoder.norm)(y, norm);
    return join_rows((this->*decoder.norm)(split_rows(y, heads), norm), heads);
  };
  ValueId q = kNoValue, k = kNoValue, v = kNoValue;
  if (decoder.fused == Fused::all) {
    const ValueId qkv = linear(x, "self_attn.qkv_proj", n_q + 2 * n_kv, {.bias = bias});
    q = columns(qkv, 0, n_q), k = columns(qkv, n_q, n_kv), v = columns(qkv, n_q + n_kv, n_kv);
  } else {
    q = clipped(linear(x, "self_attn.q_proj", n_q, {.bias = bias}));
    k = clipped(linear(x, "self_attn.k_proj", n_kv, {.bias = bias}));
    v = clipped(linear(x, "self_attn.v_proj", n_kv, {.bias = bias}));
  }
  q = rope(normed(q, "self_attn.q_norm", spec_.heads), spec_.heads, decoder.pairs);
  k = rope(normed(k, "self_attn.k_norm", spec_.kv_heads), spec_.kv_heads, decoder.pairs);
  const ValueId o = attention(scaled_by_position(q), k, v);
  const bool has_out_bias =
      decoder.out_bias == OutBias::own ? spec_.attention_out_bias : spec_.attention_bias;
  return linear(o, "self_attn.o_proj", spec_.hidden,
                {.use = MatrixUse::residual,
                 .bias = bias_if(has_out_bias && decoder.out_bias != OutBias::none)});
}

ValueId Blocks::activation(ValueId x, std::string_view origin) {
  return activation(x, origin, spec_.mlp_act);
}

ValueId Blocks::activation(ValueId x, std::string_view origin, MlpAct act) {
  switch (act) {
    case MlpAct::gelu_tanh:
      return gelu(x, origin, GeluKind::tanh);
    case MlpAct::gelu_erf:
      return gelu(x, origin, GeluKind::erf);
    case MlpAct::relu:
      return relu(x, origin);
    case MlpAct::relu2: {
      const ValueId above = relu(x, origin);
      return builder_.unary(OpCode::square, above);
    }
    case MlpAct::quick_gelu: {
      module(origin);
      const ValueId gate = builder_.unary(OpCode::logistic, builder_.scaled(x, kQuickGelu));
      return builder_.mul(x, gate);
    }
    case MlpAct::usual:
    case MlpAct::silu:
      break;
  }
  module(origin);
  return builder_.mul(x, builder_.unary(OpCode::logistic, x));
}

ValueId Blocks::capped(ValueId logits) {
  const double cap = spec_.logit_softcap;
  if (cap == 0) return logits;
  return builder_.scaled(tanh(builder_.scaled(logits, 1 / cap), "lm_head"), cap);
}

ValueId Blocks::mlp(ValueId x, const RotaryDecoder& decoder) {
  const LinearOptions wide = {.bias = bias_if(spec_.mlp_bias)};
  const LinearOptions down = {.use = MatrixUse::residual, .bias = wide.bias};
  if (decoder.mlp == MlpShape::plain) {
    const ValueId up = linear(x, "mlp.up_proj", spec_.ffn, wide);
    return linear(activation(up, "mlp.act_fn"), "mlp.down_proj", spec_.hidden, down);
  }
  ValueId gate = kNoValue, up = kNoValue;
  if (decoder.fused == Fused::none) {
    gate = linear(x, "mlp.gate_proj", spec_.ffn, wide);
    up = linear(x, "mlp.up_proj", spec_.ffn, wide);
  } else {
    const ValueId both = linear(x, "mlp.gate_up_proj", 2 * spec_.ffn, wide);
    gate = columns(both, 0, spec_.ffn), up = columns(both, spec_.ffn, spec_.ffn);
  }
  module("mlp.act_fn");
  const bool is_silu = spec_.mlp_act == MlpAct::silu;
  const ValueId product =
      is_silu
          ? builder_.emit1(OpCode::gated_act, GatedActAttrs{.act = Activation::silu}, {gate, up})
          : builder_.mul(activation(gate, "mlp.act_fn"), up);
  return linear(product, "mlp.down_proj", spec_.hidden, down);
}

namespace {

// The norms of a layer by their names, "" where there is none.
struct NormNames {
  std::string_view attention_in, attention_out, mlp_in, mlp_out;
};
NormNames names_at(NormPlace place) {
  switch (place) {
    case NormPlace::before:
      return {"input_layernorm", "", "post_attention_layernorm", ""};
    case NormPlace::after:
      return {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
    case NormPlace::around:
      return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
              "post_feedforward_layernorm"};
    case NormPlace::around_glm:
      return {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
              "post_mlp_layernorm"};
    case NormPlace::shared:
      break;
  }
  return {"input_layernorm", "", "", ""};
}

}  // namespace

ValueId rotary_layer(Blocks& b, ValueId x, const RotaryDecoder& decoder) {
  const NormNames names = names_at(decoder.place);
  const auto norm = [&](ValueId y, std::string_view path) {
    return path.empty() ? y : (b.*decoder.norm)(y, path);
  };
  const auto added = [&](ValueId y, std::string_view path) {
    return times(b.builder(), norm(y, path), b.spec().residual_multiplier);
  };
  const ValueId read = norm(x, names.attention_in);
  const ValueId after = b.add(x, added(b.rotary_attention(read, decoder), names.attention_out));
  const ValueId next = decoder.place == NormPlace::shared ? read : norm(after, names.mlp_in);
  return b.add(after, added(b.mlp(next, decoder), names.mlp_out));
}

ValueId rotary_decoder(Blocks& b, const RotaryDecoder& decoder) {
  const bool is_sqrt = decoder.embedding == EmbeddingFactor::sqrt_hidden;
  b.enter(-1, "model.");
  const ValueId embedded = b.token_embedding("embed_tokens");
  ValueId x = times(
      b.builder(), embedded,
      is_sqrt ? std::sqrt(static_cast<double>(b.spec().hidden)) : b.spec().embedding_multiplier);
  for (int layer = 0; layer < b.spec().layers; ++layer) {
    b.enter(layer, fmt::format("model.layers.{}.", layer));
    x = rotary_layer(b, x, decoder);
  }
  b.enter(-1, "model.");
  // Logits are scaled with what the head reads, so that chunks of it can be computed.
  const ValueId last = times(b.builder(), (b.*decoder.norm)(x, "norm"),
                             b.spec().logit_scale / b.spec().logits_scaling);
  return b.capped(b.head(last, "model.embed_tokens.weight"));
}

}  // namespace octet
