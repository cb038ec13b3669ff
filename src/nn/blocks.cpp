#include "nn/blocks.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octet {
namespace {

constexpr double kInitStd = 0.02;  // GPT-2's

// "q_proj" of "self_attn.q_proj"; what is named twice in a layer ("attn.c_proj", "mlp.c_proj")
// keeps its parent.
std::string_view origin_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || path.substr(dot + 1) == "c_proj") return path;
  return path.substr(dot + 1);
}

}  // namespace

Blocks::Blocks(const ModelSpec& spec) : spec_(spec), builder_(graph_) {
  batch_inputs();
}

Blocks::Blocks(const ModelSpec& spec, const BatchShape& batch, ModelOutputs outputs,
               const std::vector<ParameterSpec>& declared)
    : spec_(spec),
      batch_(batch),
      outputs_(outputs),
      collecting_(false),
      parameters_(declared),
      builder_(graph_) {
  graph_.name = model_def(spec.kind).name;
  for (const ParameterSpec& p : parameters_) {
    declare(p);
  }
  batch_inputs();
}

void Blocks::batch_inputs() {
  const TensorType per_token = index_type({batch_.batch * batch_.seq});
  tokens_ = builder_.input(InputKind::batch, "tokens", per_token);
  positions_ = builder_.input(InputKind::batch, "positions", per_token);
  if (outputs_ == ModelOutputs::logits) return;
  labels_ = builder_.input(InputKind::batch, "labels", per_token);
  inv_n_ = builder_.input(InputKind::step_scalar, "inv_n", real_type({}));
}

void Blocks::enter(int layer, std::string prefix) {
  builder_.tag.layer = layer;
  prefix_ = std::move(prefix);
}

void Blocks::module(std::string_view path) {
  builder_.tag.origin = origin_of(path);
}

std::string Blocks::name(std::string_view path, std::string_view leaf) const {
  return fmt::format("{}{}.{}", prefix_, path, leaf);
}

ValueId Blocks::parameter(ParameterSpec spec) {
  if (const auto known = by_name_.find(spec.name); known != by_name_.end()) return known->second;
  CHECK(collecting_);
  const ValueId id = declare(spec);
  parameters_.push_back(std::move(spec));
  return id;
}

ValueId Blocks::declare(const ParameterSpec& spec) {
  const ValueId id = builder_.input(InputKind::parameter, spec.name, real_type(spec.shape));
  by_name_[spec.name] = id;
  return id;
}

ValueId Blocks::matrix(std::string name, Shape shape, MatrixUse use) {
  const double std = use == MatrixUse::residual
                         ? kInitStd / std::sqrt(2.0 * static_cast<double>(spec_.layers))
                         : kInitStd;
  return parameter({.name = std::move(name),
                    .shape = std::move(shape),
                    .init = Init::normal,
                    .std = std,
                    .decay = use != MatrixUse::embedding});
}

ValueId Blocks::linear(ValueId x, std::string_view path, int64_t n_out,
                       const LinearOptions& options) {
  module(path);
  const int64_t n_in = builder_.shape(x)[1];
  const bool out_in = options.layout == WeightLayout::out_in;
  const ValueId w =
      matrix(name(path, "weight"), out_in ? Shape{n_out, n_in} : Shape{n_in, n_out}, options.use);
  const ValueId y = builder_.gemm(x, w, {.trans_b = out_in, .role = GemmRole::forward});
  if (options.bias == WithBias::no) return y;
  const ValueId b = parameter({.name = name(path, "bias"), .shape = {n_out}, .init = Init::zeros});
  return builder_.emit1(OpCode::bias_add, NoAttrs{}, {y, b});
}

ValueId Blocks::token_embedding(std::string_view path) {
  module(path);
  const ValueId table =
      matrix(name(path, "weight"), {spec_.vocab, spec_.hidden}, MatrixUse::embedding);
  return builder_.emit1(OpCode::embedding, NoAttrs{}, {table, tokens_});
}

ValueId Blocks::position_embedding(std::string_view path) {
  module(path);
  if (batch_.seq > spec_.max_positions) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected sequences of at most max_positions {}, got {}",
                spec_.max_positions, batch_.seq);
  }
  const ValueId table =
      matrix(name(path, "weight"), {spec_.max_positions, spec_.hidden}, MatrixUse::embedding);
  return builder_.emit1(OpCode::embedding, NoAttrs{}, {table, positions_});
}

ValueId Blocks::head(ValueId x, std::string_view embedding_name) {
  module("lm_head");
  const Shape shape = {spec_.vocab, spec_.hidden};
  const ValueId w = spec_.tied ? matrix(std::string(embedding_name), shape, MatrixUse::embedding)
                               : matrix("lm_head.weight", shape, MatrixUse::matrix);
  return builder_.gemm(x, w, {.trans_b = true, .role = GemmRole::forward});
}

ValueId Blocks::rms_norm(ValueId x, std::string_view path) {
  module(path);
  const ValueId w =
      parameter({.name = name(path, "weight"), .shape = {spec_.hidden}, .init = Init::ones});
  return builder_.emit(OpCode::rms_norm, NormAttrs{.eps = spec_.norm_eps}, {x, w})[RmsNorm::y];
}

ValueId Blocks::layer_norm(ValueId x, std::string_view path) {
  module(path);
  const Shape shape = {spec_.hidden};
  const ValueId w = parameter({.name = name(path, "weight"), .shape = shape, .init = Init::ones});
  const ValueId b = parameter({.name = name(path, "bias"), .shape = shape, .init = Init::zeros});
  return builder_.emit(OpCode::layer_norm, NormAttrs{.eps = spec_.norm_eps},
                       {x, w, b})[LayerNorm::y];
}

ValueId Blocks::layer_norm_without_weights(ValueId x, std::string_view path) {
  module(path);
  return builder_.emit(OpCode::layer_norm, NormAttrs{.eps = spec_.norm_eps}, {x})[LayerNorm::y];
}

ValueId Blocks::rope(ValueId x, int64_t heads) {
  module("rotary_emb");
  const RopeAttrs attrs = {.heads = heads,
                           .head_dim = spec_.head_dim,
                           .theta = spec_.rope_theta,
                           .scaling = spec_.rope_scaling,
                           .factor = spec_.rope_factor,
                           .low_freq_factor = spec_.rope_low_freq_factor,
                           .high_freq_factor = spec_.rope_high_freq_factor,
                           .original_max_position = spec_.rope_original_max_position};
  return builder_.emit1(OpCode::rope, attrs, {x, positions_});
}

ValueId Blocks::attention(ValueId q, ValueId k, ValueId v) {
  module("attention");
  const AttentionAttrs attrs = {.batch = batch_.batch,
                                .seq = batch_.seq,
                                .heads = spec_.heads,
                                .kv_heads = spec_.kv_heads,
                                .head_dim = spec_.head_dim,
                                .scale = 1 / std::sqrt(static_cast<double>(spec_.head_dim)),
                                .causal = true};
  return builder_.emit(OpCode::attention, attrs, {q, k, v})[Attention::o];
}

ValueId Blocks::rotary_attention(ValueId x) {
  const int64_t q_width = spec_.heads * spec_.head_dim;
  const int64_t kv_width = spec_.kv_heads * spec_.head_dim;
  const ValueId q = linear(x, "self_attn.q_proj", q_width);
  const ValueId k = linear(x, "self_attn.k_proj", kv_width);
  const ValueId v = linear(x, "self_attn.v_proj", kv_width);
  const ValueId o = attention(rope(q, spec_.heads), rope(k, spec_.kv_heads), v);
  return linear(o, "self_attn.o_proj", spec_.hidden, {.use = MatrixUse::residual});
}

ValueId Blocks::gated_mlp(ValueId x) {
  const ValueId gate = linear(x, "mlp.gate_proj", spec_.ffn);
  const ValueId up = linear(x, "mlp.up_proj", spec_.ffn);
  module("mlp.act_fn");
  const ValueId product =
      builder_.emit1(OpCode::gated_act, GatedActAttrs{.act = Activation::silu}, {gate, up});
  return linear(product, "mlp.down_proj", spec_.hidden, {.use = MatrixUse::residual});
}

ValueId Blocks::gelu(ValueId x, std::string_view origin) {
  module(origin);
  return builder_.emit1(OpCode::gelu, GeluAttrs{.kind = spec_.gelu}, {x});
}

ValueId Blocks::add(ValueId a, ValueId b, std::string_view origin) {
  module(origin);
  return builder_.add(a, b);
}

ValueId Blocks::columns(ValueId x, int64_t first, int64_t n) {
  return builder_.emit1(
      OpCode::slice,
      SliceAttrs{.start = {0, first}, .limit = {builder_.shape(x)[0], first + n}, .stride = {1, 1}},
      {x});
}

void Blocks::outputs(ValueId logits) {
  if (outputs_ == ModelOutputs::logits) {
    builder_.output("logits", logits);
    return;
  }
  module("loss");
  const auto results = builder_.emit(OpCode::cross_entropy, NoAttrs{}, {logits, labels_, inv_n_});
  builder_.output("loss", results[CrossEntropy::loss]);
  builder_.output("nll", results[CrossEntropy::nll]);
}

ValueId rotary_decoder(Blocks& b, NormBlock norm) {
  b.enter(-1, "model.");
  ValueId x = b.token_embedding("embed_tokens");
  for (int layer = 0; layer < b.spec().layers; ++layer) {
    b.enter(layer, fmt::format("model.layers.{}.", layer));
    x = b.add(x, b.rotary_attention((b.*norm)(x, "input_layernorm")));
    x = b.add(x, b.gated_mlp((b.*norm)(x, "post_attention_layernorm")));
  }
  b.enter(-1, "model.");
  return b.head((b.*norm)(x, "norm"), "model.embed_tokens.weight");
}

}  // namespace octet
