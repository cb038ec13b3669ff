// Parts of attention that recipes with 8-bit saved activations keep in groups
// (recipe.saved_attention), and how many elements a group has (recipe.activation_group).
#include <gtest/gtest.h>

#include <bit>

#include "backends/cuda/backend.h"
#include "plan/report.h"
#include "property/recipes/planned_runs.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_saved_attention_test {
namespace {

constexpr const char* kQkv = "recipe.saved_attention=qkv";
constexpr const char* kQkvo = "recipe.saved_attention=qkvo";

ProgramOptions options_of(SavedAttention saved, ForwardReads reads = ForwardReads::unquantized) {
  ProgramOptions options = tiny::options("coat");
  options.recipe_options.saved_attention = saved;
  options.recipe_options.forward_reads = reads;
  return options;
}

uint32_t first_loss(const ProgramOptions& options) {
  return std::bit_cast<uint32_t>(tiny::losses(options, 1).front());
}

float grad_norm(const ProgramOptions& options, const cpu::Backend& backend) {
  TrainEngine engine(options, *backend.device, *backend.catalogue);
  tiny::start(engine);
  const Batch batch = tiny::batch(options.train, 0);
  return engine.step({&batch, 1}, tiny::scalars(0)).grad_norm;
}

TEST(SavedAttention, changes_the_loss_only_where_attention_reads_what_is_stored) {
  const uint32_t loss = first_loss(options_of(SavedAttention::wide));
  const uint32_t stored = first_loss(options_of(SavedAttention::wide, ForwardReads::stored));
  for (const SavedAttention saved : {SavedAttention::qkv, SavedAttention::qkvo}) {
    EXPECT_EQ(first_loss(options_of(saved)), loss) << enum_name(saved);
    EXPECT_NE(first_loss(options_of(saved, ForwardReads::stored)), stored) << enum_name(saved);
  }
}

TEST(SavedAttention, has_gradients_of_the_groups_near_those_of_the_values) {
  const float of_values = grad_norm(options_of(SavedAttention::wide), tiny::backend());
  float before = of_values;
  for (const SavedAttention saved : {SavedAttention::qkv, SavedAttention::qkvo}) {
    const float norm = grad_norm(options_of(saved), tiny::backend());
    EXPECT_NE(norm, before) << enum_name(saved);
    EXPECT_NEAR(norm, of_values, 0.01f * of_values) << enum_name(saved);
    const float reference = grad_norm(options_of(saved), cpu::make_backend(1, cpu::Isa::scalar));
    EXPECT_NEAR(norm, reference, 0.002f * reference) << enum_name(saved);
    before = norm;
  }
}

struct Kept {
  double units;  // of batch x seq x hidden x 2 bytes
  int64_t bytes;
};

constexpr int64_t kModelWidth = 512, kRowTokens = 128;

Kept kept(const std::string& kind, const std::vector<std::string>& sets, const Catalogue& to) {
  const std::string shape = fmt::format(
      "kind: {}, hidden: {}, layers: 3, heads: 4, kv_heads: 4, ffn: 1376, vocab: 256, seq: {}",
      kind, kModelWidth, kRowTokens);
  const PlannedRun run = planned_run("coat", shape, sets);
  Program program(run.options, to);
  const int64_t bytes =
      std::ranges::max(kept_per_layer(program.plan(program.train_functions().front()).graph));
  const int64_t rows = run.options.train.batch * run.options.train.seq;
  return {static_cast<double>(bytes) / static_cast<double>(rows * kModelWidth * 2), bytes};
}

// 1 U of BF16 becomes 0.5 U of codes and 1/16 U of scales.
TEST(SavedAttention, keeps_fewer_bytes_on_every_device) {
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1, .capability = 90});
  for (const Catalogue* to : {tiny::backend().catalogue.get(), gpu.catalogue.get()}) {
    const double wide = kept("llama", {}, *to).units;
    EXPECT_NEAR(wide - kept("llama", {kQkv}, *to).units, 3 * 0.4375, 1e-3);
    const double all = kept("llama", {kQkvo}, *to).units;
    EXPECT_NEAR(wide - all, 4 * 0.4375, 1e-3);
    EXPECT_LE(all, 6.45);  // hidden 512, ffn 2.6875 x 512
  }
  for (const ModelDef* model : models()) {
    const std::string kind(model->name);
    const Catalogue& to = *tiny::backend().catalogue;
    const auto bytes = [&](std::vector<std::string> sets) {
      const bool has_linear = find_hf_key(*model, "linear_layers") != nullptr;
      if (has_linear) sets.emplace_back("model.linear_layers=[0, 0, 0]");
      return kept(kind, sets, to).bytes;
    };
    EXPECT_LT(bytes({kQkvo}), bytes({kQkv})) << kind;
    EXPECT_LT(bytes({kQkv}), bytes({})) << kind;
  }
}

TEST(ActivationGroup, of_more_elements_keeps_fewer_scales) {
  const Catalogue& to = *tiny::backend().catalogue;
  double before = kept("llama", {}, to).units;
  for (const int group : {32, 64, 128}) {
    const std::string key = fmt::format("recipe.activation_group={}", group);
    const double units = kept("llama", {key}, to).units;
    // Two residuals, gate and up: 1 / group of a scale instead of 2 / group.
    EXPECT_NEAR(before - units, (2 + 2 * 2.6875) / group, 2e-3) << group;
    before = units;
    const double of_blocks = kept("llama", {fmt::format("{}x{}", key, group)}, to).units;
    EXPECT_NEAR(units - of_blocks, (2 + 2 * 2.6875) * (1.0 / group - 1.0 / (group * group)), 2e-3);
  }
}

TEST(ActivationGroup, trains_with_every_size) {
  ProgramOptions options = options_of(SavedAttention::wide);
  const uint32_t loss = first_loss(options);
  float before = grad_norm(options, tiny::backend());
  const float of_sixteen = before;
  for (const char* name : {"1x32", "1x64", "1x128", "16x16", "32x32", "128x128"}) {
    const Granularity group = find_granularity(name).value();
    options.recipe_options.activation_group = group;
    EXPECT_EQ(first_loss(options), loss) << name;
    const float norm = grad_norm(options, tiny::backend());
    EXPECT_NEAR(norm, of_sixteen, 0.01f * of_sixteen) << name;
    const float reference = grad_norm(options, cpu::make_backend(1, cpu::Isa::scalar));
    EXPECT_NEAR(norm, reference, 0.002f * reference) << name;
    if (group.size <= 32) EXPECT_NE(norm, before) << name;
    before = norm;
  }
}

}  // namespace
}  // namespace octet::recipes_saved_attention_test
