#include "nn/shape.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/fields.h"
#include "nn/model.h"
#include "nn/vision.h"

namespace octet {
namespace {

std::optional<ModelFault> out_of_bounds(const ModelSpec& spec, bool derived) {
  for (const ModelField& field : model_fields()) {
    const bool is_derived = field.origin == FieldOrigin::derived;
    if (is_derived != derived || !field.is_of(spec)) continue;
    const std::optional<double> number = number_of(field, spec);
    if (!number || is_within(field.bounds, *number)) continue;
    return ModelFault{
        .field = field.name(), .expected = number_text(field), .got = field_text(field, spec)};
  }
  return std::nullopt;
}

}  // namespace

ModelFault fault_against(std::string_view field, std::string_view other, std::string expected,
                         const ModelSpec& spec) {
  return {.field = field,
          .expected = std::move(expected),
          .got = field_text(model_field(field), spec),
          .other = other,
          .other_value = field_text(model_field(other), spec)};
}

std::string ModelFault::expected_of(std::string_view other_name) const {
  const size_t at = expected.find("{}");
  if (at == std::string::npos) return expected;
  std::string text = expected;
  return text.replace(at, 2, fmt::format("{} = {}", other_name, other_value));
}

int64_t rotary_width(const ModelSpec& spec) {
  return static_cast<int64_t>(static_cast<double>(spec.head_dim) * spec.rope_share);
}

bool has_window(const ModelSpec& spec, int64_t layer) {
  if (spec.sliding_window == 0 || layer < 0) return false;
  if (spec.window_layers.empty()) return layer >= spec.window_from;
  return spec.window_layers[static_cast<size_t>(layer)] != 0;
}

std::vector<int64_t> all_but_every(int64_t n, int64_t layers) {
  constexpr int64_t kTooMany = 4096;  // which the field's bounds refuse
  std::vector<int64_t> list;
  for (int64_t i = 0; i < std::min(layers, kTooMany); ++i) list.push_back((i + 1) % n == 0 ? 0 : 1);
  return list;
}

bool has_state(const ModelSpec& full) {
  return std::ranges::count(full.linear_layers, 1) > 0;
}

void fill_widths(ModelSpec& full, int64_t first, int64_t most) {
  if (!full.hidden_sizes.empty()) return;
  int64_t size = first;
  for (size_t i = 0; i < full.depths.size(); ++i, size = std::min(2 * size, most))
    full.hidden_sizes.push_back(size);
}

std::optional<ModelFault> fault_of_stages(const ModelSpec& full) {
  constexpr int64_t kMaxBlocks = 4096;
  if (full.layers > kMaxBlocks)
    return ModelFault{.field = "depths",
                      .expected = fmt::format("at most {} blocks in all", kMaxBlocks),
                      .got = field_text(model_field("depths"), full)};
  if (full.hidden_sizes.size() != full.depths.size())
    return fault_against("hidden_sizes", "depths", "as many as {}", full);
  return std::nullopt;
}

namespace {

// Fills what kinds of rotary positions leave open.
void fill_positions(ModelSpec& full) {
  const bool is_longrope = full.rope_scaling == RopeScaling::longrope;
  const bool is_yarn = full.rope_scaling == RopeScaling::yarn;
  if (full.rope_original_max_position == 0) full.rope_original_max_position = full.max_positions;
  const auto original = static_cast<double>(full.rope_original_max_position);
  if (full.rope_factor == 0 && (is_longrope || is_yarn))
    full.rope_factor = std::max(1.0, static_cast<double>(full.max_positions) / original);
  if (full.rope_attention_factor != 0 || !(is_longrope || is_yarn)) return;
  const double growth = std::log(std::max(full.rope_factor, 1.0));
  const auto yarn_factor = [&](double mscale) { return 1 + 0.1 * mscale * growth; };
  const bool has_both = full.rope_mscale != 0 && full.rope_mscale_all_dim != 0;
  full.rope_attention_factor =
      is_longrope ? std::sqrt(1 + growth / std::log(std::max(original, 2.0)))
      : has_both  ? yarn_factor(full.rope_mscale) / yarn_factor(full.rope_mscale_all_dim)
                  : yarn_factor(1);
}

// Layers with a window, where the kind has every n-th layer without.
void fill_windows(ModelSpec& full, const ModelDef& def) {
  if (def.full_every == 0 || !full.window_layers.empty()) return;
  full.window_layers = all_but_every(full.sliding_window == 0 ? 1 : def.full_every, full.layers);
  if (def.last_is_full && !full.window_layers.empty()) full.window_layers.back() = 0;
}

// All but each fourth and the last, where the kind has layers of the gated delta rule.
void fill_linear_layers(ModelSpec& full) {
  if (!full.linear_layers.empty() || !model_field("linear_layers").is_of(full)) return;
  full.linear_layers = all_but_every(kAttentionEvery, full.layers);
  if (!full.linear_layers.empty()) full.linear_layers.back() = 0;
}

// Fields of a convolutional network: what its kind says, and no attention.
void fill_convolutional(ModelSpec& full) {
  model_def(full.kind).fill(full);
  full.heads = full.kv_heads = 1;
  full.head_dim = full.ffn = full.hidden;
  full.patch_size = full.image_size;
}

}  // namespace

ModelSpec text_spec(const ModelSpec& spec) {
  ModelSpec text = spec;
  text.kind = spec.text;
  return text;
}

ModelSpec filled(const ModelSpec& spec) {
  ModelSpec full = spec;
  if (model_def(spec.kind).sees_pictures) {
    full = filled(text_spec(spec));
    full.kind = spec.kind;
    model_def(spec.kind).fill(full);
    return full;
  }
  if (model_def(full.kind).is_convolutional) fill_convolutional(full);
  if (full.kv_heads == 0) full.kv_heads = full.heads;
  if (full.decoder_layers == 0) full.decoder_layers = full.layers;
  if (full.classes == 0) full.classes = 2;
  if (full.head_dim == 0) full.head_dim = full.hidden / full.heads;
  fill_positions(full);
  fill_windows(full, model_def(full.kind));
  fill_linear_layers(full);
  const auto is_of = [&](std::string_view field) { return model_field(field).is_of(full); };
  if (const HfKey* act = find_hf_key(model_def(full.kind), "mlp_act");
      act != nullptr && full.mlp_act == MlpAct::usual)
    full.mlp_act = static_cast<MlpAct>(act->absent.value_or(static_cast<int>(MlpAct::silu)));
  const auto width = static_cast<double>(full.head_dim);
  if (full.query_pre_attn_scalar == 0 && is_of("query_pre_attn_scalar"))
    full.query_pre_attn_scalar = full.head_dim;
  if (full.attention_multiplier == 0 && is_of("attention_multiplier"))
    full.attention_multiplier = 1 / std::sqrt(width);
  if (full.embedding_size == 0 && is_of("embedding_size")) full.embedding_size = full.hidden;
  if (full.global_head_dim == 0 && is_of("global_head_dim")) full.global_head_dim = full.head_dim;
  if (full.global_kv_heads == 0 && is_of("global_kv_heads")) full.global_kv_heads = full.kv_heads;
  if (full.ffn == 0) {
    full.ffn = model_def(full.kind).mlp != MlpKind::gated ? 4 * full.hidden
                                                          : (full.hidden * 8 / 3 + 127) / 128 * 128;
  }
  return full;
}

int64_t first_position(const ModelSpec& spec) {
  return model_def(spec.kind).positions_follow_pad ? spec.pad_token + 1 : 0;
}

int64_t longest_row(const ModelSpec& spec) {
  return spec.max_positions - first_position(spec);
}

namespace {

// Fault of lists that have one element for each of something.
std::optional<ModelFault> fault_of_lists(const ModelSpec& full) {
  if (!full.window_layers.empty() && std::ssize(full.window_layers) != full.layers)
    return fault_against("window_layers", "layers", "one for each of {}", full);
  if (full.rope_scaling != RopeScaling::longrope) return std::nullopt;
  for (const auto& [name, list] : {std::pair("rope_scaling.short_factor", &full.rope_short_factor),
                                   std::pair("rope_scaling.long_factor", &full.rope_long_factor)}) {
    if (std::ssize(*list) == rotary_width(full) / 2) continue;
    return ModelFault{.field = name,
                      .expected = fmt::format("{} numbers, one for each rotated pair of a head",
                                              rotary_width(full) / 2),
                      .got = fmt::to_string(list->size())};
  }
  return std::nullopt;
}

// Fault of a model with an encoder and a decoder.
std::optional<ModelFault> fault_of_translation(const ModelSpec& full) {
  const ModelDef& def = model_def(full.kind);
  if (def.positions == Positions::relative && full.relative_distance <= full.relative_buckets / 2)
    return fault_against("relative_distance", "relative_buckets", "more than half of {}", full);
  if (def.positions == Positions::sinusoidal && full.hidden % 2 != 0)
    return ModelFault{.field = "hidden",
                      .expected = "an even width for sinusoidal positions",
                      .got = std::to_string(full.hidden)};
  if (def.translates && full.start_token >= full.vocab)
    return fault_against("start_token", "vocab", "less than {}", full);
  return std::nullopt;
}

std::optional<ModelFault> fault_of_patches(const ModelDef& def, const ModelSpec& full) {
  if (!def.reads_images) return std::nullopt;
  if (is_tower_alone(def.kind) && full.patch_size > full.image_size)
    return fault_against("patch_size", "image_size", "at most {}", full);
  if (!is_tower_alone(def.kind) && full.image_size % full.patch_size != 0)
    return fault_against("patch_size", "image_size", "a divisor of {}", full);
  return std::nullopt;
}

std::optional<ModelFault> fault_of_head(const ModelDef& def, const ModelSpec& full) {
  if (!def.heads.empty() && full.head != ModelHead::text &&
      std::ranges::find(def.heads, full.head, &HeadDef::head) == def.heads.end()) {
    std::vector<std::string_view> names;
    for (const HeadDef& head : def.heads) names.push_back(enum_name(head.head));
    return ModelFault{
        .field = "head",
        .expected = fmt::format("one of {} for kind {}", fmt::join(names, ", "), def.name),
        .got = std::string(enum_name(full.head))};
  }
  return std::nullopt;
}

// Fault of a model with pictures: of its decoder, then of what is its own.
std::optional<ModelFault> fault_of_parts(const ModelSpec& spec) {
  if (auto fault = fault_of(text_spec(spec))) return fault;
  if (auto fault = out_of_bounds(spec, false)) return fault;
  const ModelSpec full = filled(spec);
  if (auto fault = out_of_bounds(full, true)) return fault;
  return model_def(full.kind).fault(full);
}

}  // namespace

std::optional<ModelFault> fault_of(const ModelSpec& spec) {
  if (model_def(spec.kind).sees_pictures) return fault_of_parts(spec);
  if (auto fault = out_of_bounds(spec, false)) return fault;
  const bool has_attention = !model_def(spec.kind).is_convolutional;
  if (has_attention && spec.head_dim == 0 && spec.hidden % spec.heads != 0) {
    return fault_against("heads", "hidden", "a divisor of {}", spec);
  }
  const ModelSpec full = filled(spec);
  const ModelDef& def = model_def(full.kind);
  if (auto fault = out_of_bounds(full, true)) return fault;
  if (def.fault != nullptr) {
    if (auto fault = def.fault(full)) return fault;
  }
  if (full.heads % full.kv_heads != 0)
    return fault_against("kv_heads", "heads", "a divisor of {}", full);
  if (auto fault = fault_of_patches(def, full)) return fault;
  if (auto fault = fault_of_head(def, full)) return fault;
  if (def.positions_follow_pad && longest_row(full) < 1)
    return fault_against("max_positions", "pad_token", "more rows than {} + 1", full);
  if (auto fault = fault_of_translation(full)) return fault;
  if (!def.grouped_heads && full.kv_heads != full.heads) {
    return fault_against("kv_heads", "heads", fmt::format("{{}} for kind {}", def.name), full);
  }
  if (def.positions == Positions::rotary && full.head_dim % 2 != 0) {
    return fault_against("head_dim", "hidden", "an even width of a head for rotary positions",
                         full);
  }
  if (def.positions == Positions::rotary && rotary_width(full) % 2 != 0) {
    return fault_against("rope_share", "head_dim", "an even number of elements of {}", full);
  }
  if (full.rope_scaling == RopeScaling::dynamic && rotary_width(full) < 4) {
    return fault_against("head_dim", "hidden", "4 or more rotated elements for dynamic scaling",
                         full);
  }
  if (full.rope_scaling == RopeScaling::yarn && full.rope_theta <= 1) {
    return ModelFault{.field = "rope_theta",
                      .expected = "more than 1 with scaling yarn",
                      .got = fmt::format("{}", full.rope_theta)};
  }
  if (full.llama4_beta != 0 && !model_field("rope_scaling.original_max_position").is_of(full)) {
    return ModelFault{.field = "rope_scaling.llama_4_scaling_beta",
                      .expected = "0 without an original length (scaling yarn, longrope or llama3)",
                      .got = fmt::format("{}", full.llama4_beta)};
  }
  if (auto fault = fault_of_lists(full)) return fault;
  const bool is_llama3 = model_field("rope_scaling.low_freq_factor").is_of(full);
  if (is_llama3 && full.rope_high_freq_factor <= full.rope_low_freq_factor) {
    return fault_against("rope_scaling.high_freq_factor", "rope_scaling.low_freq_factor",
                         "more than {}", full);
  }
  return std::nullopt;
}

}  // namespace octet
