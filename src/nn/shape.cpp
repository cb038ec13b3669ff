#include "nn/shape.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

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

// Of a convolutional network: what its kind says, and no attention.
void fill_convolutional(ModelSpec& full) {
  model_def(full.kind).fill(full);
  full.heads = full.kv_heads = 1;
  full.head_dim = full.ffn = full.hidden;
  full.patch_size = full.image_size;
}

}  // namespace

ModelSpec filled(const ModelSpec& spec) {
  ModelSpec full = spec;
  if (model_def(full.kind).is_convolutional) fill_convolutional(full);
  if (full.kv_heads == 0) full.kv_heads = full.heads;
  if (full.classes == 0) full.classes = 2;
  if (full.head_dim == 0) full.head_dim = full.hidden / full.heads;
  if (full.rope_original_max_position == 0) full.rope_original_max_position = full.max_positions;
  if (full.rope_attention_factor == 0 && full.rope_scaling == RopeScaling::yarn) {
    full.rope_attention_factor = 1 + 0.1 * std::log(std::max(full.rope_factor, 1.0));
  }
  if (full.ffn == 0) {
    full.ffn = model_def(full.kind).mlp == MlpKind::gelu ? 4 * full.hidden
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

std::optional<ModelFault> fault_of(const ModelSpec& spec) {
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
  if (def.reads_images && full.image_size % full.patch_size != 0)
    return fault_against("patch_size", "image_size", "a divisor of {}", full);
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
    return fault_against("max_positions", "pad_token", "more rows than {} + 1", full);
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
    return fault_against("rope_scaling.high_freq_factor", "rope_scaling.low_freq_factor",
                         "more than {}", full);
  }
  return std::nullopt;
}

}  // namespace octet
