#include "infer/gguf_spec.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "base/error.h"
#include "infer/gguf_architecture.h"
#include "nn/shape.h"
#include "text/gguf_vocabulary.h"

namespace octet {
namespace {

// Keys that gguf_spec() reads, behind the architecture's name and a dot.
constexpr std::string_view kReadKeys[] = {"vocab_size",
                                          "context_length",
                                          "embedding_length",
                                          "block_count",
                                          "feed_forward_length",
                                          "attention.head_count",
                                          "attention.head_count_kv",
                                          "attention.key_length",
                                          "attention.value_length",
                                          "attention.layer_norm_rms_epsilon",
                                          "rope.dimension_count",
                                          "rope.freq_base",
                                          "rope.scaling.type",
                                          "rope.scaling.factor",
                                          "rope.scale_linear"};
// Keys without effect: on yarn alone, whose length it is, or on nothing that computes.
constexpr std::string_view kNeutralKeys[] = {"llama.rope.scaling.original_context_length",
                                             "llama.rope.scaling.finetuned"};
constexpr std::string_view kProvedPrefix = "llama.";  // of the model that they were proved with
// Keys with a value that says what a model is without them.
struct NeutralValue {
  std::string_view key;
  GgufType type;
  std::string_view value;
};
constexpr NeutralValue kNeutralValues[] = {
    {"expert_count", GgufType::u32, "0"},
    {"expert_used_count", GgufType::u32, "0"},
    {"attention.sliding_window", GgufType::u32, "0"},
    {"attention.causal", GgufType::boolean, "true"},
    {"attention.scale", GgufType::f32, "0"},
    {"rope.scaling.attn_factor", GgufType::f32, "1"},
    {"rope.scaling.yarn_log_multiplier", GgufType::f32, "0"},
    {"use_parallel_residual", GgufType::boolean, "false"},
    {"tensor_data_layout", GgufType::string, "Meta AI original pth"}};
// Whose keys say what a file is, and nothing that computes.
constexpr std::string_view kNeutralPrefixes[] = {"general.", "quantize.", "split."};
constexpr std::string_view kVocabularyPrefix = "tokenizer.";
constexpr std::string_view kSamplingPrefix = "general.sampling.";

// The decimal that was meant by a number of 32 bits: 1e-5, not 9.99999974e-06.
double decimal(float x) {
  return std::strtod(fmt::format("{}", x).c_str(), nullptr);
}

const GgufArchitecture& architecture_of(const GgufHeader& header) {
  const std::string kind = header.string("general.architecture");
  const GgufArchitecture* known = find_gguf_architecture(kind);
  if (known == nullptr) {
    header.bad("expected general.architecture to be one of {}, got '{}'", gguf_architecture_names(),
               kind);
  }
  return *known;
}

std::string prefix_of(const GgufHeader& header) {
  return std::string(architecture_of(header).name) + ".";
}

const GgufTensor* find_tensor(const GgufHeader& header, std::string_view name) {
  const auto at = std::ranges::find(header.tensors(), name, &GgufTensor::name);
  return at == header.tensors().end() ? nullptr : &*at;
}

bool is_one_of(const auto& list, std::string_view key) {
  return std::ranges::find(list, key) != std::end(list);
}

// A key of the model, whose name is behind its prefix.
void check_model_key(const GgufHeader& header, const std::string& key, std::string_view name) {
  const auto* neutral = std::ranges::find(kNeutralValues, name, &NeutralValue::key);
  if (neutral != std::end(kNeutralValues)) {
    const std::string got = header.shown(key, neutral->type);
    if (got != neutral->value) header.bad("expected '{}' {}, got {}", key, neutral->value, got);
  } else if (!is_one_of(kReadKeys, name) &&
             !is_one_of(kNeutralKeys, std::string(kProvedPrefix) + std::string(name))) {
    header.bad("'{}' is not known: it may change what the model computes", key);
  }
}

// Linear where the type is absent, and without effect where the factor is.
void read_rope_scaling(const GgufHeader& header, std::span<const float> divisors, ModelSpec& spec) {
  const std::string rope = prefix_of(header) + "rope.", key = rope + "scaling.type",
                    usual = rope + "scaling.factor";
  const std::string factor_key = header.has(usual) ? usual : rope + "scale_linear";
  const std::string type = header.has(key) ? header.string(key) : "linear";
  if (type != "linear" && type != "none")
    header.bad("expected '{}' none or linear, got '{}'", key, type);
  const double factor = header.has(factor_key) ? decimal(header.real(factor_key)) : 0;
  const bool is_linear = type == "linear" && factor != 0 && factor != 1;
  if (is_linear && !(factor > 1))
    header.bad("expected '{}' of 1 or more, got {}", factor_key, factor);
  if (is_linear) {
    spec.rope_scaling = RopeScaling::linear;
    spec.rope_factor = factor;
  }
  if (divisors.empty()) return;
  if (is_linear) header.bad("expected '{}' without '{}', got both", kGgufFrequencies, factor_key);
  if (const std::string problem = set_llama3_scaling(divisors, spec); !problem.empty())
    header.bad("'{}': {}", kGgufFrequencies, problem);
}

// A field of a ModelSpec by the key that it is read from, for messages.
std::string key_of(const GgufHeader& header, std::string_view field) {
  constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
      {"hidden", "embedding_length"},       {"layers", "block_count"},
      {"heads", "attention.head_count"},    {"kv_heads", "attention.head_count_kv"},
      {"head_dim", "attention.key_length"}, {"ffn", "feed_forward_length"},
      {"max_positions", "context_length"},  {"norm_eps", "attention.layer_norm_rms_epsilon"},
      {"rope_theta", "rope.freq_base"},     {"rope_scaling.factor", "rope.scaling.factor"}};
  const auto* at =
      std::ranges::find(kKeys, field, &std::pair<std::string_view, std::string_view>::first);
  return at == std::end(kKeys) ? std::string(field) : prefix_of(header) + std::string(at->second);
}

// Fields that no key says, but which tensors there are.
void read_from_tensors(const GgufHeader& header, ModelSpec& spec) {
  spec.tied = find_tensor(header, "output.weight") == nullptr;
  if (spec.kind != ModelKind::llama) return;
  spec.attention_bias = find_tensor(header, "blk.0.attn_q.bias") != nullptr;
  spec.mlp_bias = find_tensor(header, "blk.0.ffn_up.bias") != nullptr;
}

// A number of all layers, or a list of each layer's, which are to be equal.
int64_t number_of_layers(const GgufHeader& header, const std::string& key, int64_t n_layers) {
  if (!header.is_list(key)) return header.number(key);
  const std::vector<int64_t> all = header.numbers(key);
  if (std::ssize(all) != n_layers)
    header.bad("expected '{}' of {} layers, got {} numbers", key, n_layers, all.size());
  const auto other = std::ranges::adjacent_find(all, std::ranges::not_equal_to());
  if (other != all.end()) {
    header.bad("expected '{}' of one number for all layers, got {} and {}", key, *other,
               *(other + 1));
  }
  return all.empty() ? 0 : all.front();
}

ModelSpec read_spec(const GgufHeader& header, std::span<const float> divisors) {
  const std::string prefix = prefix_of(header);
  const auto number = [&](const std::string& key) -> int64_t {
    return header.number(prefix + key);
  };
  const auto of_layers = [&](const std::string& key) {
    return number_of_layers(header, prefix + key, number("block_count"));
  };
  const GgufTensor* embedding = find_tensor(header, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    header.bad("expected a matrix 'token_embd.weight', got none");
  ModelSpec spec{.kind = architecture_of(header).kind,
                 .hidden = number("embedding_length"),
                 .layers = number("block_count"),
                 .heads = of_layers("attention.head_count"),
                 .ffn = of_layers("feed_forward_length"),
                 .vocab = embedding->shape[0],
                 .max_positions = number("context_length")};
  if (header.has(prefix + "attention.head_count_kv"))
    spec.kv_heads = of_layers("attention.head_count_kv");
  if (header.has(prefix + "attention.key_length")) spec.head_dim = number("attention.key_length");
  spec.norm_eps = decimal(header.real(prefix + "attention.layer_norm_rms_epsilon"));
  if (header.has(prefix + "rope.freq_base"))
    spec.rope_theta = decimal(header.real(prefix + "rope.freq_base"));
  read_from_tensors(header, spec);
  // The values that the divisors are compared with need the width of a head.
  if (!divisors.empty() && spec.heads > 0) spec.head_dim = filled(spec).head_dim;
  read_rope_scaling(header, divisors, spec);
  if (const auto fault = fault_of(spec)) {
    header.bad("expected '{}' {}, got {}", key_of(header, fault->field),
               fault->expected_of(key_of(header, fault->other)), fault->got);
  }
  return filled(spec);
}

}  // namespace

ModelSpec gguf_spec(const GgufHeader& header, std::span<const float> divisors) {
  ModelSpec spec = read_spec(header, divisors);
  const std::string prefix = prefix_of(header);
  const auto expect = [&](const std::string& name, int64_t value) {
    const std::string key = prefix + name;
    if (header.has(key) && header.number(key) != value)
      header.bad("expected '{}' {}, got {}", key, value, header.number(key));
  };
  expect("attention.value_length", spec.head_dim);
  expect("rope.dimension_count", spec.head_dim);
  expect("vocab_size", spec.vocab);
  const auto n_tokens = std::ssize(header.strings("tokenizer.ggml.tokens"));
  if (n_tokens != spec.vocab)
    header.bad("expected a token for each of {} rows, got {} tokens", spec.vocab, n_tokens);
  return spec;
}

void check_gguf_keys(const GgufHeader& header, const Log& log) {
  const std::string parts =
      header.has("split.count") ? header.shown("split.count", GgufType::u16) : "0";
  if (parts != "0" && parts != "1") header.bad("expected a whole file, got one of {} parts", parts);
  if (header.has("general.type")) {
    const std::string type = header.string("general.type");
    if (type != "model") header.bad("expected 'general.type' model, got {}", type);
  }
  const std::string prefix = prefix_of(header);
  for (const std::string& key : header.keys()) {
    if (key.starts_with(kSamplingPrefix) && !is_read_sampling_key(key)) {
      log.warning("[gguf] {}: '{}' is not used: no sampling here has it", header.path(), key);
    } else if (key.starts_with(prefix)) {
      check_model_key(header, key, std::string_view(key).substr(prefix.size()));
    } else if (!key.starts_with(kVocabularyPrefix) &&
               std::ranges::none_of(kNeutralPrefixes,
                                    [&](auto other) { return key.starts_with(other); })) {
      log.warning("[gguf] {}: '{}' is not known, and ignored", header.path(), key);
    }
  }
}

std::vector<std::string_view> neutral_gguf_keys() {
  std::vector<std::string_view> keys = neutral_vocabulary_keys();
  keys.insert(keys.end(), std::begin(kNeutralKeys), std::end(kNeutralKeys));
  keys.insert(keys.end(), std::begin(kNeutralPrefixes), std::end(kNeutralPrefixes));
  return keys;
}

}  // namespace octet
