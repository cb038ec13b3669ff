#include "nn/blocks.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/linear_use.h"
#include "nn/rotary_model.h"
#include "nn/shape.h"

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

Blocks::Blocks(const ModelSpec& spec)
    : whole_(spec), spec_(spec), builder_(graph_), n_layers_(spec.layers) {
  batch_inputs();
}

Blocks::Blocks(const ModelSpec& spec, const BatchSize& batch,
               const std::vector<WeightedLoss>& losses, const std::vector<ParameterSpec>& declared)
    : whole_(spec),
      spec_(spec),
      batch_(batch),
      losses_(losses),
      collecting_(false),
      parameters_(declared),
      builder_(graph_),
      n_layers_(spec.layers) {
  graph_.name = model_def(spec.kind).name;
  for (const ParameterSpec& p : parameters_) {
    declare(p);
  }
  batch_inputs();
}

void Blocks::batch_inputs() {
  const RowDims dims{
      .rows = batch_.batch, .seq = batch_.seq, .rows_per_sample = octet::rows_per_sample(losses_)};
  for (const InputSpec& spec : octet::batch_inputs(spec_, batch_, losses_)) {
    Shape shape = {dims.count(spec.per)};
    shape.insert(shape.end(), spec.inner.begin(), spec.inner.end());
    const TensorType type = spec.type == HostType::real ? real_type(shape) : index_type(shape);
    inputs_[spec.name] = builder_.input(InputKind::batch, spec.name, type);
  }
  for (size_t i = 0; i < losses_.size(); ++i) {
    const std::string name = inv_n_name(losses_, i);
    inputs_[name] = builder_.input(InputKind::step_scalar, name, real_type({}));
  }
}

ValueId Blocks::input(std::string_view name) const {
  const ValueId id = input_or_none(name);
  CHECK(id != kNoValue);
  return id;
}

ValueId Blocks::input_or_none(std::string_view name) const {
  const auto at = inputs_.find(name);
  return at == inputs_.end() ? kNoValue : at->second;
}

void Blocks::enter(int layer, std::string prefix) {
  const bool is_of_part = layer >= 0 && !part_.stack.empty();
  builder_.tag.layer = is_of_part ? static_cast<int>(part_first_) + layer : layer;
  builder_.tag.layer_name.clear();
  if (is_of_part) builder_.tag.layer_name = fmt::format("{}.layers.{}", part_.stack, layer);
  in_stack_ = layer;
  n_layers_ = spec_.layers;
  prefix_ = part_name(prefix);
}

std::string Blocks::part_name(const std::string& own) const {
  return own.starts_with(part_.own) ? part_.prefix + own.substr(part_.own.size()) : own;
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
  const InputKind kind = spec.is_statistic ? InputKind::statistic : InputKind::parameter;
  const ValueId id = builder_.input(kind, spec.name, real_type(spec.shape));
  by_name_[spec.name] = id;
  return id;
}

ParameterSpec Blocks::matrix_spec(std::string name, Shape shape, MatrixUse use) const {
  const double std = use == MatrixUse::residual
                         ? kInitStd / std::sqrt(2.0 * static_cast<double>(n_layers_))
                         : kInitStd;
  return {.name = std::move(name),
          .shape = std::move(shape),
          .init = Init::normal,
          .std = std,
          .decay = use != MatrixUse::embedding};
}

ValueId Blocks::matrix(std::string name, Shape shape, MatrixUse use, const Shape& file_shape) {
  ParameterSpec spec = matrix_spec(std::move(name), std::move(shape), use);
  spec.file_shape = file_shape;
  return parameter(std::move(spec));
}

ValueId Blocks::linear(ValueId x, std::string_view path, int64_t n_out,
                       const LinearOptions& options) {
  module(path);
  if (options.whole_path) builder_.tag.origin = path;
  // Passes know a linear of a layer by its name, and by it its gradients: each use of it by its
  // own.
  Tag& tag = builder_.tag;
  auto& [weight, n_uses] = linears_[{tag.layer, tag.origin}];
  if (n_uses == 0) weight = name(path, "weight");
  CHECK(tag.layer < 0 || weight == name(path, "weight"));
  if (weight == name(path, "weight")) tag.origin = use_origin(tag.origin, n_uses++);
  const ValueId w = linear_weight(path, n_out, builder_.shape(x)[1], options);
  const bool out_in = options.layout == WeightLayout::out_in;
  const ValueId y = builder_.gemm(x, w, {.trans_b = out_in, .role = GemmRole::forward});
  if (options.bias == WithBias::no) return y;
  const ValueId b = parameter({.name = name(path, "bias"), .shape = {n_out}, .init = Init::zeros});
  return builder_.binary(OpCode::bias_add, y, b);
}

ValueId Blocks::linear_weight(std::string_view path, int64_t n_out, int64_t n_in,
                              const LinearOptions& options) {
  const bool out_in = options.layout == WeightLayout::out_in;
  ParameterSpec spec = matrix_spec(name(path, "weight"),
                                   out_in ? Shape{n_out, n_in} : Shape{n_in, n_out}, options.use);
  spec.file_shape = options.file_shape;
  spec.channels_last = options.channels_last;
  if (options.std > 0) spec.std = options.std;
  return parameter(std::move(spec));
}

ValueId Blocks::token_embedding(std::string_view path) {
  const ValueId x = embedding(path, "tokens", spec_.vocab);
  const auto merge = part_.merge;  // a copy, which other parts do not move meanwhile
  return merge ? merge(x) : x;
}

ValueId Blocks::position_embedding(std::string_view path) {
  module(path);
  const int64_t before = model_def(spec_.kind).rows_before_positions;
  const int64_t first = before + first_position(spec_), n = longest_row(spec_);
  if (batch_.seq > n) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected sequences of at most max_positions {}, got {}", n, batch_.seq);
  }
  const ValueId table = matrix(name(path, "weight"), {before + spec_.max_positions, spec_.hidden},
                               MatrixUse::embedding);
  return builder_.emit1(
      OpCode::embedding, NoAttrs{},
      {first == 0 ? table : builder_.slice(table, 0, first, n), input("positions")});
}

ValueId Blocks::head(ValueId x, std::string_view embedding_name) {
  if (spec_.tied) return tied_head(x, std::string(embedding_name));
  module("lm_head");
  const ValueId w = matrix(std::string(model_def(whole_.kind).head),
                           {spec_.vocab, builder_.shape(x)[1]}, MatrixUse::matrix);
  return builder_.gemm(x, w, {.trans_b = true, .role = GemmRole::forward});
}

ValueId Blocks::attention(ValueId q, ValueId k, ValueId v, const AttentionOptions& options) {
  module("attention");
  const bool is_causal = options.mask == AttentionMask::causal;
  const int64_t head_dim = options.head_dim > 0 ? options.head_dim : spec_.head_dim;
  // The factor of queries and of keys, where all of a head is rotated.
  const double factor = rotary_width(spec_) == spec_.head_dim ? rotary_factor() : 1;
  const int64_t divisor = spec_.query_pre_attn_scalar;
  const auto width = static_cast<double>(divisor > 0 ? divisor : head_dim);
  const double own = spec_.attention_multiplier;
  const double scale = factor * factor * (own > 0 ? own : 1 / std::sqrt(width));
  const AttentionAttrs attrs = {
      .batch = batch_.batch,
      .q_len = builder_.shape(q)[0] / batch_.batch,
      .kv_len = builder_.shape(k)[0] / batch_.batch,
      .heads = options.heads > 0 ? options.heads : spec_.heads,
      .kv_heads = options.kv_heads > 0 ? options.kv_heads : spec_.kv_heads,
      .head_dim = head_dim,
      .scale = options.scale != 0 ? options.scale : scale,
      .mask = options.mask,
      .window = is_causal ? window() : 0,
      .softcap = spec_.attention_softcap,
      .keys = options.keys.value_or(is_causal ? AttentionKeys::appended : AttentionKeys::own)};
  ValueId begins = options.key_begins;
  if (is_causal && begins == kNoValue) begins = input_or_none("doc_starts");
  return builder_.emit(OpCode::attention, attrs,
                       {q, k, v, begins, kNoValue, options.key_ends, options.bias})[Attention::o];
}

ValueId Blocks::gelu(ValueId x, std::string_view origin) {
  return gelu(x, origin, spec_.gelu);
}

ValueId Blocks::gelu(ValueId x, std::string_view origin, GeluKind kind) {
  module(origin);
  return builder_.emit1(OpCode::gelu, GeluAttrs{.kind = kind}, {x});
}

ValueId Blocks::add(ValueId a, ValueId b, std::string_view origin) {
  module(origin);
  return builder_.add(a, b);
}

ValueId Blocks::columns(ValueId x, int64_t first, int64_t n) {
  return builder_.slice(x, 1, first, n);
}

ValueId Blocks::split_rows(ValueId x, int64_t n) {
  const Shape& shape = builder_.shape(x);
  return builder_.reshape(x, {shape[0] * n, shape[1] / n});
}

ValueId Blocks::join_rows(ValueId x, int64_t n) {
  const Shape& shape = builder_.shape(x);
  return builder_.reshape(x, {shape[0] / n, shape[1] * n});
}

LossValues Blocks::cross_entropy(ValueId logits, ValueId labels, ValueId inv_n, double smoothing) {
  const auto results = builder_.emit(
      OpCode::cross_entropy, CrossEntropyAttrs{.smoothing = smoothing}, {logits, labels, inv_n});
  return {results[CrossEntropy::loss], {{"nll", results[CrossEntropy::nll]}}};
}

void Blocks::outputs(const Outputs& values) {
  const std::vector<OutputSpec> specs = model_def(spec_.kind).outputs(spec_);
  CHECK(values.size() == specs.size());
  for (size_t i = 0; i < specs.size(); ++i) builder_.output(std::string(specs[i].name), values[i]);
}

void Blocks::losses(const Outputs& values) {
  const std::vector<OutputSpec> specs = model_def(spec_.kind).outputs(spec_);
  CHECK(values.size() == specs.size());
  ValueId total = kNoValue;
  std::vector<std::pair<std::string, ValueId>> metrics;
  enter(-1, "");
  for (size_t i = 0; i < losses_.size(); ++i) {
    const LossDef& def = *find_loss(losses_[i].name);
    const auto output = std::ranges::find(specs, def.output, &OutputSpec::read_as);
    module("loss");
    const LossValues result =
        def.build(*this, {.output = values[static_cast<size_t>(output - specs.begin())],
                          .inv_n = input(inv_n_name(losses_, i)),
                          .options = losses_[i].options});
    const double weight = losses_[i].weight;
    const ValueId loss = weight == 1 ? result.loss : builder_.scaled(result.loss, weight);
    total = total == kNoValue ? loss : builder_.add(total, loss);
    for (const Metric& metric : result.metrics)
      metrics.emplace_back(metric_name(losses_, i, metric.name), metric.value);
  }
  builder_.output("loss", total);
  for (const auto& [name, value] : metrics) builder_.output(name, value);
}

}  // namespace octet
