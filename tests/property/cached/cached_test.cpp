// prefill and decode over a KV cache give the logits of one forward pass over the whole text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "formats/codec.h"
#include "infer/inference.h"
#include "infer/model_spec.h"
#include "nn/shape.h"
#include "property/cached/bound_functions.h"
#include "property/recipes/tiny_training.h"
#include "unit/base/error_of.h"

namespace octet::cached_test {
namespace {

constexpr int64_t kTexts = 2, kTokens = 12, kPrompt = 7;

class CachedProgram {
 public:
  CachedProgram(const ModelSpec& spec, std::string_view recipe, cpu::Backend& backend,
                const std::vector<FunctionKey>& functions)
      : functions_(options(spec, recipe), backend, functions, model_parameters(spec)) {}

  BoundPlan& fill(const FunctionKey& key, const std::vector<int32_t>& tokens,
                  const std::vector<int32_t>& positions) {
    BoundPlan& plan = functions_.at(key);
    const auto n_bytes = static_cast<int64_t>(tokens.size() * sizeof(int32_t));
    plan.write_input("tokens", tokens.data(), n_bytes);
    if (plan.has_input("positions")) plan.write_input("positions", positions.data(), n_bytes);
    plan.run();
    return plan;
  }

  // The logits of all rows; tokens and positions [batch][seq].
  std::vector<float> run(const FunctionKey& key, const std::vector<int32_t>& tokens,
                         const std::vector<int32_t>& positions) {
    BoundPlan& plan = fill(key, tokens, positions);
    const TensorType& type = plan.plan().graph.type(plan.plan().graph.find_output("logits")->value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
    plan.read_output("logits", bytes.data(), type.n_bytes());
    std::vector<float> values(static_cast<size_t>(type.n_elems()));
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half = 0;
      std::memcpy(type.dtype == Dtype::f32 ? static_cast<void*>(&values[i]) : &half,
                  bytes.data() + i * static_cast<size_t>(dtype_bytes(type.dtype)),
                  static_cast<size_t>(dtype_bytes(type.dtype)));
      if (type.dtype != Dtype::f32) values[i] = f32_from_bf16(half);
    }
    return values;
  }

 private:
  static ProgramOptions options(const ModelSpec& spec, std::string_view recipe) {
    ProgramOptions result;
    result.forward = forward_builder(spec);
    result.recipe = recipe;
    result.train = {.batch = kTexts, .seq = kTokens};
    result.inference_only = true;
    return result;
  }

  test::BoundFunctions functions_;
};

int32_t token(int64_t text, int64_t t) {
  return static_cast<int32_t>((text * 17 + t * t * 5 + 3) % 48);
}

// Tokens [first, first + n) of both texts; those at or behind `end` are padding, at no position,
// where the text will go on, or the last token again.
struct Rows {
  std::vector<int32_t> tokens, positions;
};
enum class Padding { at_none, in_place, repeats };
Rows rows(int64_t first, int64_t n, int64_t end = kTokens, Padding padding = Padding::at_none) {
  Rows result;
  for (int64_t text = 0; text < kTexts; ++text) {
    for (int64_t t = first; t < first + n; ++t) {
      const int64_t from = padding == Padding::repeats ? std::min(t, end - 1) : t;
      result.tokens.push_back(from < end ? token(text, from) : 0);
      const bool has_position = from < end || padding == Padding::in_place;
      result.positions.push_back(has_position ? static_cast<int32_t>(from) : -1);
    }
  }
  return result;
}

struct Case {
  ModelKind kind;
  std::string recipe;
  double tolerance;  // of logits, whose magnitude is about 0.1
  bool reference = false;
};

ModelSpec spec_of(const Case& c) {
  ModelSpec spec = tiny::spec(c.kind);
  if (model_def(c.kind).grouped_heads) spec.kv_heads = 1;
  const auto has = [&](std::string_view field) {
    return find_hf_key(model_def(c.kind), field) != nullptr;
  };
  if (has("sliding_window")) spec.sliding_window = 4;
  if (has("window_layers")) spec.window_layers = {1, 0};
  if (has("shared_kv_layers")) {
    spec.layers = 4, spec.window_layers = {1, 0, 1, 0};
    spec.shared_kv_layers = 2, spec.wide_shared_mlp = spec.keys_are_values = true;
    spec.global_head_dim = 2 * spec.head_dim, spec.global_kv_heads = spec.heads;
    spec.layer_input = 3;
  }
  if (has("linear_layers")) {
    spec.linear_layers = {1, 0}, spec.conv_width = 3;
    spec.linear_key_heads = 2, spec.linear_value_heads = 4;
    spec.linear_key_dim = 8, spec.linear_value_dim = 4;
  }
  if (has("attention_softcap")) spec.attention_softcap = 0.5;
  if (has("rope_share") && c.kind != ModelKind::gpt_neox) spec.rope_share = 0.5;
  if (has("rope_scaling.llama_4_scaling_beta")) {
    spec.rope_scaling = RopeScaling::yarn;
    spec.rope_original_max_position = 4;
    spec.llama4_beta = 0.5;
  }
  return spec;
}

// Every kind in f32, and some under other recipes.
std::vector<Case> cases() {
  std::vector<Case> all = {
      {ModelKind::llama, "fp32", 1e-6, true}, {ModelKind::gemma2, "fp32", 1e-6, true},
      {ModelKind::llama, "bf16", 2e-3},       {ModelKind::qwen3_5, "bf16", 2e-3},
      {ModelKind::qwen3_5, "coat", 2e-2},     {ModelKind::gpt2, "coat", 2e-2}};
  for (const ModelDef* def : models()) all.push_back({def->kind, "fp32", 1e-6});
  return all;
}

class Cached : public testing::TestWithParam<Case> {};

TEST_P(Cached, logits_are_those_of_the_whole_text) {
  const ModelSpec spec = spec_of(GetParam());
  cpu::Backend scalar = cpu::make_backend(1, cpu::Isa::scalar);
  cpu::Backend& backend = GetParam().reference ? scalar : tiny::backend();
  const FunctionKey whole{function::logits, {.batch = kTexts, .seq = kTokens}};
  std::vector<FunctionKey> functions = {whole};
  constexpr int64_t kSizes[] = {kTokens, 160};
  for (const int64_t size : kSizes) {
    functions.push_back({function::prefill, {.batch = kTexts, .seq = kPrompt + 2, .cache = size}});
    functions.push_back({function::decode, {.batch = kTexts, .seq = 1, .cache = size}});
  }
  CachedProgram program(spec, GetParam().recipe, backend, functions);
  const Rows all = rows(0, kTokens);
  const std::vector<float> expected = program.run(whole, all.tokens, all.positions);
  const auto vocab = static_cast<size_t>(spec.vocab);
  const auto compare = [&](const std::vector<float>& got, int64_t first, int64_t n, int64_t rows) {
    for (int64_t text = 0; text < kTexts; ++text) {
      for (int64_t t = 0; t < n; ++t) {
        for (size_t i = 0; i < vocab; ++i) {
          const float is = got[static_cast<size_t>(text * rows + t) * vocab + i];
          const float wanted =
              expected[static_cast<size_t>(text * kTokens + first + t) * vocab + i];
          ASSERT_NEAR(is, wanted, GetParam().tolerance) << text << " " << first + t << " " << i;
        }
      }
    }
  };
  // Both caches at once: the functions take turns.
  for (const int64_t size : kSizes) {
    // Learned positions have no row for -1; a state takes a token once.
    const bool is_learned = model_def(GetParam().kind).positions == Positions::learned;
    const bool repeats = size == kSizes[1] && !has_state(spec);
    const Padding padding = repeats      ? Padding::repeats
                            : is_learned ? Padding::in_place
                                         : Padding::at_none;
    const Rows prompt = rows(0, kPrompt + 2, kPrompt, padding);
    const BatchSize batch{.batch = kTexts, .seq = kPrompt + 2, .cache = size};
    compare(program.run({function::prefill, batch}, prompt.tokens, prompt.positions), 0, kPrompt,
            kPrompt + 2);
  }
  for (int64_t t = kPrompt; t < kTokens; ++t) {
    for (const int64_t size : kSizes) {
      const Rows next = rows(t, 1);
      const BatchSize batch{.batch = kTexts, .seq = 1, .cache = size};
      compare(program.run({function::decode, batch}, next.tokens, next.positions), t, 1, 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(models, Cached, testing::ValuesIn(cases()), [](const auto& info) {
  const Case& c = info.param;
  return fmt::format("{}_{}{}", model_def(c.kind).name, c.recipe, c.reference ? "_scalar" : "");
});

// Generation on the CPU: pieces of any length, texts at different places, others beside them.
TEST(CachedBits, are_those_of_the_training_forward) {
  cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa(), cpu::RowSums::same);
  for (const ModelKind kind : {ModelKind::llama, ModelKind::gpt2, ModelKind::qwen3}) {
    for (const char* recipe : {"fp32", "bf16"}) {
      ModelSpec spec = tiny::spec(kind);
      const FunctionKey whole{function::logits, {.batch = kTexts, .seq = kTokens}};
      const auto cached = [](std::string_view name, int64_t seq) {
        return FunctionKey{name, {.batch = kTexts, .seq = seq, .cache = 40}};
      };
      CachedProgram program(spec, recipe, backend,
                            {whole, cached(function::fill, 5), cached(function::prefill, 3),
                             cached(function::decode, 1)});
      const Rows all = rows(0, kTokens);
      const std::vector<float> expected = program.run(whole, all.tokens, all.positions);
      const auto vocab = static_cast<size_t>(spec.vocab);
      const auto compare = [&](const std::vector<float>& got, int64_t first, int64_t n) {
        for (int64_t text = 0; text < kTexts; ++text) {
          const auto from = static_cast<size_t>(text * kTokens + first) * vocab;
          const auto at = static_cast<size_t>(text * n) * vocab;
          EXPECT_EQ(std::memcmp(&got[at], &expected[from], static_cast<size_t>(n) * vocab * 4), 0)
              << recipe << " " << first;
        }
      };
      const Rows filled = rows(0, 5), more = rows(5, 3);
      program.fill(cached(function::fill, 5), filled.tokens, filled.positions);
      compare(program.run(cached(function::prefill, 3), more.tokens, more.positions), 5, 3);
      for (int64_t t = 8; t < kTokens; ++t) {
        const Rows next = rows(t, 1);
        compare(program.run(cached(function::decode, 1), next.tokens, next.positions), t, 1);
      }
    }
  }
}

// A back end's kernels stay of its kind, whatever is opened beside it.
TEST(CachedBits, do_not_depend_on_other_back_ends) {
  cpu::Backend same = cpu::make_backend(2, cpu::detect_isa(), cpu::RowSums::same);
  const ModelSpec spec = tiny::spec(ModelKind::gpt2);
  const FunctionKey whole{function::logits, {.batch = kTexts, .seq = kTokens}};
  const Rows all = rows(0, kTokens);
  const auto logits = [&] {
    return CachedProgram(spec, "fp32", same, {whole}).run(whole, all.tokens, all.positions);
  };
  const std::vector<float> alone = logits();
  const cpu::Backend other = cpu::make_backend(2, cpu::detect_isa(), cpu::RowSums::library);
  EXPECT_EQ(logits(), alone);
}

TEST(CachedSizes, a_cache_that_is_too_small_is_refused) {
  const FunctionKey prefill{function::prefill, {.batch = 1, .seq = 8, .cache = 7}};
  EXPECT_EQ(
      test::error_of([&] { CachedProgram(tiny::spec(), "fp32", tiny::backend(), {prefill}); }),
      "[llama] expected a cache of at least 8 positions, got 7");
}

}  // namespace
}  // namespace octet::cached_test
