#include "infer/gguf_architecture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numbers>
#include <span>
#include <vector>

#include "base/error.h"
#include "ir/ops/rope.h"

namespace octet {
namespace {

constexpr GgufArchitecture kArchitectures[] = {{"llama", ModelKind::llama, true, true},
                                               {"qwen2", ModelKind::qwen2, false, false},
                                               {"qwen3", ModelKind::qwen3, false, false}};

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  const auto* at = std::ranges::find(kArchitectures, name, &GgufArchitecture::name);
  return at == std::end(kArchitectures) ? nullptr : at;
}

const GgufArchitecture* gguf_architecture_of(ModelKind kind) {
  if (kind == ModelKind::mistral) kind = ModelKind::llama;
  const auto* at = std::ranges::find(kArchitectures, kind, &GgufArchitecture::kind);
  return at == std::end(kArchitectures) ? nullptr : at;
}

std::string gguf_architecture_names() {
  std::string names;
  for (const GgufArchitecture& one : kArchitectures)
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", one.name);
  return names;
}

std::string gguf_name(const std::string& parameter) {
  static const std::map<std::string_view, std::string_view> kModules = {
      {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  constexpr std::string_view kLayers = "model.layers.";
  if (parameter == "model.embed_tokens.weight") return "token_embd.weight";
  if (parameter == "model.norm.weight") return "output_norm.weight";
  if (parameter == "lm_head.weight") return "output.weight";
  if (!parameter.starts_with(kLayers)) return "";
  const size_t dot = parameter.find('.', kLayers.size()), end = parameter.rfind('.');
  if (dot == parameter.npos || end <= dot) return "";
  const auto module = kModules.find(std::string_view(parameter).substr(dot + 1, end - dot - 1));
  if (module == kModules.end()) return "";
  return fmt::format("blk.{}.{}{}", parameter.substr(kLayers.size(), dot - kLayers.size()),
                     module->second, parameter.substr(end));
}

int64_t paired_width(const GgufArchitecture& architecture, const ModelSpec& spec,
                     const std::string& parameter) {
  const bool is_rotated =
      parameter.find(".q_proj.") != parameter.npos || parameter.find(".k_proj.") != parameter.npos;
  return architecture.has_paired_rows && is_rotated ? spec.head_dim : 0;
}

std::vector<float> llama3_divisors(const ModelSpec& spec) {
  RopeAttrs attrs{.head_dim = spec.head_dim, .theta = spec.rope_theta};
  const std::vector<double> unscaled = rope_frequencies(attrs);
  attrs.scaling = RopeScaling::llama3;
  attrs.factor = spec.rope_factor;
  attrs.low_freq_factor = spec.rope_low_freq_factor;
  attrs.high_freq_factor = spec.rope_high_freq_factor;
  attrs.original_max_position = spec.rope_original_max_position;
  const std::vector<double> scaled = rope_frequencies(attrs);
  std::vector<float> divisors;
  for (size_t i = 0; i < scaled.size(); ++i)
    divisors.push_back(static_cast<float>(unscaled[i] / scaled[i]));
  return divisors;
}

namespace {

constexpr float kTolerance = 1e-5f;  // of sums in f32
constexpr double kLowFactor = 1, kHighFactor = 4;

// The factor with which the slowest pair, of a head's last columns, has this divisor; 0: none.
double factor_of(const ModelSpec& spec, double original, double divisor) {
  const double wavelength =
      2 * std::numbers::pi /
      rope_frequencies({.head_dim = spec.head_dim, .theta = spec.rope_theta}).back();
  const double smooth = (original / wavelength - kLowFactor) / (kHighFactor - kLowFactor);
  if (smooth <= 0) return divisor;
  const double share = 1 / divisor - smooth;  // (1 - smooth) / factor
  return share > 0 ? (1 - smooth) / share : 0;
}

}  // namespace

bool are_equal_divisors(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b,
                            [](float x, float y) { return std::fabs(x - y) <= kTolerance * y; });
}

std::string set_llama3_scaling(std::span<const float> divisors, ModelSpec& spec) {
  const int64_t n = spec.head_dim / 2;
  // A width that no file vouches for.
  if (std::ssize(divisors) != n)
    return fmt::format("expected {} divisors, one for two columns of a head, got {}", n,
                       divisors.size());
  const auto [least, most] = std::ranges::minmax(divisors);
  if (are_equal_divisors(divisors, std::vector<float>(divisors.size(), 1))) return "";
  ModelSpec scaled = spec;
  scaled.rope_scaling = RopeScaling::llama3;
  scaled.rope_low_freq_factor = kLowFactor;
  scaled.rope_high_freq_factor = kHighFactor;
  for (int64_t original = 1024; original <= int64_t{1} << 20; original *= 2) {
    scaled.rope_original_max_position = original;
    const double factor = factor_of(spec, static_cast<double>(original), divisors.back());
    for (const double rounded : {std::round(factor), factor}) {
      if (!(rounded > 1)) continue;
      scaled.rope_factor = rounded;
      if (!are_equal_divisors(divisors, llama3_divisors(scaled))) continue;
      spec = scaled;
      return "";
    }
  }
  return fmt::format(
      "expected {} divisors of Llama 3's scaling by {:g} (low_freq_factor 1, high_freq_factor 4, "
      "original_max_position_embeddings a power of two from 1024 to 1048576), got others, from "
      "{:g} to {:g}",
      n, most, least, most);
}

}  // namespace octet
