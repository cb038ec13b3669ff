#include "nn/shape.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "nn/fields.h"
#include "nn/model.h"

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

// `field` against another one.
ModelFault against(std::string_view field, std::string_view other, std::string expected,
                   const ModelSpec& spec) {
  return {.field = field,
          .expected = std::move(expected),
          .got = field_text(model_field(field), spec),
          .other = other,
          .other_value = field_text(model_field(other), spec)};
}

}  // namespace

std::string ModelFault::expected_of(std::string_view other_name) const {
  const size_t at = expected.find("{}");
  if (at == std::string::npos) return expected;
  std::string text = expected;
  return text.replace(at, 2, fmt::format("{} = {}", other_name, other_value));
}

int64_t rotary_width(const ModelSpec& spec) {
  return static_cast<int64_t>(static_cast<double>(spec.head_dim) * spec.rope_share);
}

namespace {

// Of a convolutional network: what its stages say, and no attention.
void fill_stages(ModelSpec& full) {
  const bool is_bottleneck = full.layer_type == ResidualBlock::bottleneck;
  if (full.embedding_size == 0) full.embedding_size = full.cifar ? 16 : 64;
  if (full.depths.empty())
    full.depths = full.cifar ? std::vector<int64_t>{3, 3, 3} : std::vector<int64_t>{3, 4, 6, 3};
  if (full.hidden_sizes.empty()) {
    constexpr int64_t kTooWide = 1 << 17;  // which the field's bounds refuse
    int64_t size = full.cifar ? 16 : is_bottleneck ? 256 : 64;
    for (size_t i = 0; i < full.depths.size(); ++i, size = std::min(2 * size, kTooWide))
      full.hidden_sizes.push_back(size);
  }
  full.layers = std::accumulate(full.depths.begin(), full.depths.end(), int64_t{0});
  full.hidden = full.hidden_sizes.back();
  full.heads = full.kv_heads = 1;
  full.head_dim = full.ffn = full.hidden;
  full.patch_size = full.image_size;
}

std::optional<ModelFault> fault_of_stages(const ModelSpec& full) {
  const auto is_narrow = [](int64_t size) { return size % 4 != 0; };
  constexpr int64_t kMaxBlocks = 4096;
  if (full.layers > kMaxBlocks)
    return ModelFault{.field = "depths",
                      .expected = fmt::format("at most {} blocks in all", kMaxBlocks),
                      .got = field_text(model_field("depths"), full)};
  if (full.hidden_sizes.size() != full.depths.size())
    return against("hidden_sizes", "depths", "as many as {}", full);
  if (full.cifar && full.layer_type == ResidualBlock::bottleneck)
    return against("layer_type", "cifar", "basic with {}", full);
  if (full.layer_type == ResidualBlock::bottleneck &&
      std::ranges::any_of(full.hidden_sizes, is_narrow))
    return against("hidden_sizes", "layer_type", "multiples of 4 with {}", full);
  if (full.cifar && (full.embedding_size > full.hidden_sizes.front() ||
                     !std::ranges::is_sorted(full.hidden_sizes)))
    return against("hidden_sizes", "embedding_size", "none smaller than that before it, or than {}",
                   full);
  return std::nullopt;
}

}  // namespace

ModelSpec filled(const ModelSpec& spec) {
  ModelSpec full = spec;
  if (model_def(full.kind).is_convolutional) fill_stages(full);
  if (full.kv_heads == 0) full.kv_heads = full.heads;
  if (full.decoder_layers == 0) full.decoder_layers = full.layers;
  if (full.classes == 0) full.classes = 2;
  if (full.head_dim == 0) full.head_dim = full.hidden / full.heads;
  if (full.rope_original_max_position == 0) full.rope_original_max_position = full.max_positions;
  if (full.rope_attention_factor == 0 && full.rope_scaling == RopeScaling::yarn) {
    full.rope_attention_factor = 1 + 0.1 * std::log(std::max(full.rope_factor, 1.0));
  }
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

// Of a model with an encoder and a decoder.
std::optional<ModelFault> fault_of_translation(const ModelSpec& full) {
  const ModelDef& def = model_def(full.kind);
  if (def.positions == Positions::relative && full.relative_distance <= full.relative_buckets / 2)
    return against("relative_distance", "relative_buckets", "more than half of {}", full);
  if (def.positions == Positions::sinusoidal && full.hidden % 2 != 0)
    return ModelFault{.field = "hidden",
                      .expected = "an even width for sinusoidal positions",
                      .got = std::to_string(full.hidden)};
  if (def.translates && full.start_token >= full.vocab)
    return against("start_token", "vocab", "less than {}", full);
  return std::nullopt;
}

}  // namespace

std::optional<ModelFault> fault_of(const ModelSpec& spec) {
  if (auto fault = out_of_bounds(spec, false)) return fault;
  const bool has_attention = !model_def(spec.kind).is_convolutional;
  if (has_attention && spec.head_dim == 0 && spec.hidden % spec.heads != 0) {
    return against("heads", "hidden", "a divisor of {}", spec);
  }
  const ModelSpec full = filled(spec);
  const ModelDef& def = model_def(full.kind);
  if (auto fault = out_of_bounds(full, true)) return fault;
  if (def.is_convolutional) {
    if (auto fault = fault_of_stages(full)) return fault;
  }
  if (full.heads % full.kv_heads != 0) return against("kv_heads", "heads", "a divisor of {}", full);
  if (def.reads_images && full.image_size % full.patch_size != 0)
    return against("patch_size", "image_size", "a divisor of {}", full);
  if (!def.heads.empty() && full.head != ModelHead::text &&
      std::ranges::find(def.heads, full.head, &HeadDef::head) == def.heads.end()) {
    std::vector<std::string_view> names;
    for (const HeadDef& head : def.heads) names.push_back(enum_name(head.head));
    return ModelFault{
        .field = "head",
        .expected = fmt::format("one of {} for kind {}", fmt::join(names, ", "), def.name),
        .got = std::string(enum_name(full.head))};
  }
  if (def.positions_follow_pad && longest_row(full) < 1)
    return against("max_positions", "pad_token", "more rows than {} + 1", full);
  if (auto fault = fault_of_translation(full)) return fault;
  if (!def.grouped_heads && full.kv_heads != full.heads) {
    return against("kv_heads", "heads", fmt::format("{{}} for kind {}", def.name), full);
  }
  if (def.positions == Positions::rotary && full.head_dim % 2 != 0) {
    return against("head_dim", "hidden", "an even width of a head for rotary positions", full);
  }
  if (def.positions == Positions::rotary && rotary_width(full) % 2 != 0) {
    return against("rope_share", "head_dim", "an even number of elements of {}", full);
  }
  if (full.rope_scaling == RopeScaling::dynamic && rotary_width(full) < 4) {
    return against("head_dim", "hidden", "4 or more rotated elements for dynamic scaling", full);
  }
  if (full.rope_scaling == RopeScaling::yarn && full.rope_share != 1) {
    return ModelFault{.field = "rope_share",
                      .expected = "1 with scaling yarn",
                      .got = fmt::format("{}", full.rope_share)};
  }
  if (full.rope_scaling == RopeScaling::yarn && full.rope_theta <= 1) {
    return ModelFault{.field = "rope_theta",
                      .expected = "more than 1 with scaling yarn",
                      .got = fmt::format("{}", full.rope_theta)};
  }
  const bool is_llama3 = model_field("rope_scaling.low_freq_factor").is_of(full);
  if (is_llama3 && full.rope_high_freq_factor <= full.rope_low_freq_factor) {
    return against("rope_scaling.high_freq_factor", "rope_scaling.low_freq_factor", "more than {}",
                   full);
  }
  return std::nullopt;
}

}  // namespace octet
