// Every recipe and every optimizer state trains every model; what must and must not change the
// bits of the loss.
#include <gtest/gtest.h>

#include <bit>
#include <initializer_list>
#include <set>

#include "optim/state_format.h"
#include "plan/report.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_training_test {
namespace {

uint32_t bits(float x) {
  return std::bit_cast<uint32_t>(x);
}

void expect_learns(const std::vector<float>& losses, const std::string& what) {
  for (const float loss : losses) EXPECT_TRUE(std::isfinite(loss)) << what;
  EXPECT_NEAR(losses.front(), std::log(48.0f), 0.2f) << what;
  EXPECT_LT(losses.back(), losses.front() - 0.3f) << what;
}

constexpr int kSteps = 30;

// Two recipes train the kinds behind the first nine, which are made of the same blocks.
TEST(Recipes, every_recipe_trains_every_model) {
  for (const Recipe* recipe : all_recipes()) {
    if (recipe->unit_scales) continue;  // scalify/unit_scaling_test.cpp
    for (const ModelDef* model : models()) {
      const bool is_one_of_two = recipe->name == "coat" || recipe->name == "scalify_fp8";
      if (model->kind > ModelKind::gpt_neox && !is_one_of_two) continue;
      const ModelSpec spec = tiny::spec(model->kind);
      expect_learns(tiny::losses(tiny::options(recipe->name, spec), kSteps, spec),
                    fmt::format("{} {}", recipe->name, model->name));
    }
  }
}

TEST(Recipes, every_state_format_trains) {
  for (const char* name : {"f32", "bf16", "bf16_sr", "e4m3", "e4m3+x", "e5m2", "e5m2+x", "hif8",
                           "hif8+x", "de8", "de8+x"}) {
    ProgramOptions options = tiny::options("coat");
    options.optim.state_m = options.optim.state_v = state_format_from_name(name);
    expect_learns(tiny::losses(options, kSteps), name);
  }
}

TEST(Recipes, coat_and_bf16_differ_at_every_step) {
  const auto coat = tiny::losses(tiny::options("coat"), 5);
  const auto bf16 = tiny::losses(tiny::options("bf16"), 5);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NE(bits(coat[i]), bits(bf16[i])) << i;
    EXPECT_NEAR(coat[i], bf16[i], 0.05f) << i;
  }
}

ProgramOptions with_roles(std::string_view recipe, std::initializer_list<std::string_view> none) {
  const OperandFormat wide = operand_format_from_name(kNotQuantized, false).value();
  LinearOverride roles{.pattern = "*"};
  for (const std::string_view role : none)
    (role == "x" ? roles.x : role == "w" ? roles.w : roles.dy) = wide;
  ProgramOptions options = tiny::options(recipe);
  options.recipe_options.overrides = {roles};
  return options;
}

TEST(Recipes, without_a_quantized_role_have_the_bits_of_what_they_compute_in) {
  const auto bf16 = tiny::losses(tiny::options("bf16"), 5);
  for (const char* recipe : {"fp8_linear", "fp8_block", "hif8", "scalify_fp8"}) {
    const auto wide = tiny::losses(with_roles(recipe, {"x", "w", "dy"}), 5);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(bits(wide[i]), bits(bf16[i])) << recipe << " " << i;
  }
}

// Which operands are quantized, and that no product reads codes.
TEST(Recipes, quantize_one_role_alone) {
  for (const char* recipe : {"fp8_linear", "fp8_block", "coat-fast", "mxfp8"}) {
    const auto all = tiny::losses(tiny::options(recipe), 5);
    std::set<uint32_t> last;
    for (const auto& none :
         {std::initializer_list<std::string_view>{"w", "dy"}, {"x", "dy"}, {"x", "w"}}) {
      const ProgramOptions options = with_roles(recipe, none);
      const auto losses = tiny::losses(options, 5);
      for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(losses[i], all[i], 0.05f) << recipe << " " << i;
      last.insert(bits(losses.back()));
      Program program(options, *tiny::backend().catalogue);
      const Graph& graph = program.plan(function::step).graph;
      for (const Node& node : graph.nodes) {
        if (node.op != OpCode::gemm) continue;
        EXPECT_FALSE(is_quantized(graph.type(node.in(Gemm::a)).dtype)) << recipe;
        EXPECT_FALSE(is_quantized(graph.type(node.in(Gemm::b)).dtype)) << recipe;
      }
      EXPECT_GT(count_ops(graph).at("dequantize"), 0) << recipe;
    }
    last.insert(bits(all.back()));
    EXPECT_EQ(last.size(), 4u) << recipe;
  }
}

TEST(Recipes, recomputing_changes_no_bit) {
  for (const Recipe* recipe : all_recipes()) {
    ProgramOptions options = tiny::options(recipe->name);
    options.recompute = Recompute::none;
    const auto kept = tiny::losses(options, 3);
    for (const Recompute what : {Recompute::cheap, Recompute::full}) {
      options.recompute = what;
      const auto repeated = tiny::losses(options, 3);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_EQ(bits(kept[i]), bits(repeated[i]))
            << recipe->name << " " << enum_name(what) << " step " << i;
    }
  }
}

TEST(Recipes, released_gradients_give_the_losses_of_an_unclipped_run) {
  for (const char* recipe : {"bf16", "coat"}) {
    ProgramOptions options = tiny::options(recipe);
    TrainEngine whole(options, *tiny::backend().device, *tiny::backend().catalogue);
    options.optim.clipping = Clipping::none;
    TrainEngine released(options, *tiny::backend().device, *tiny::backend().catalogue);
    EXPECT_LT(released.planned_bytes(), whole.planned_bytes());
    tiny::start(whole);
    tiny::start(released);
    for (uint32_t step = 0; step < 3; ++step) {
      const Batch batch = tiny::batch(options.train, step);
      StepScalars scalars = tiny::scalars(step);
      scalars.clip = 0;
      const StepOutcome a = whole.step({&batch, 1}, scalars),
                        b = released.step({&batch, 1}, scalars);
      EXPECT_EQ(bits(a.loss), bits(b.loss)) << recipe << " " << step;
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5f * a.grad_norm);
      EXPECT_FALSE(b.nonfinite);
    }
  }
}

TEST(Recipes, two_micro_batches_are_one_step_of_twice_the_batch) {
  for (const Recipe* recipe : all_recipes()) {
    ProgramOptions whole = tiny::options(recipe->name), parts = whole;
    parts.train.batch /= 2;
    parts.accumulate = 2;
    const auto a = tiny::losses(whole, 4), b = tiny::losses(parts, 4);
    // fp32: sums in another order. Else the gradients are summed in BF16 and scales differ.
    const float tolerance = recipe->compute == Dtype::f32 ? 1e-5f : 2e-2f;
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(a[i], b[i], tolerance) << recipe->name << " " << i;
  }
}

TEST(Recipes, chunks_of_the_head_change_only_the_order_of_sums) {
  ProgramOptions whole = tiny::options("fp32"), chunks = whole;
  chunks.head_chunk_bytes = 10 * 48 * 4;  // 10 rows of 64
  const auto a = tiny::losses(whole, 4), b = tiny::losses(chunks, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(a[i], b[i], 1e-5f) << i;
  Program program(chunks, *tiny::backend().catalogue);
  for (const std::string_view name : {function::step, function::evaluate}) {
    for (const Buffer& buffer : program.plan(name).buffers)
      EXPECT_NE(buffer.bytes, 64 * 48 * 4) << "whole logits: " << buffer.name;
    EXPECT_EQ(count_ops(program.plan(name).graph).at("cross_entropy"), 7);
  }
}

TEST(Recipes, delayed_scaling_trains_and_its_history_is_state) {
  ProgramOptions options = tiny::options("fp8_linear");
  options.recipe_options.scaling = Scaling::delayed;
  expect_learns(tiny::losses(options, kSteps), "delayed");
  TrainEngine engine(options, *tiny::backend().device, *tiny::backend().catalogue);
  tiny::start(engine);
  std::vector<std::string> histories;
  for (const auto& [name, slot] : engine.layout().slots) {
    if (name.rfind("amax_history:", 0) != 0) continue;
    histories.push_back(name);
    EXPECT_EQ(slot.kind, InputKind::state);
    EXPECT_EQ(slot.arena, Arena::persistent);
  }
  // Per layer: x of 4 groups (qkv, o, gate and up, down), as many gradients.
  EXPECT_EQ(histories.size(), 2u * 4 * 2);
  const Batch batch = tiny::batch(options.train, 0);
  for (uint32_t step = 0; step < 3; ++step) engine.step({&batch, 1}, tiny::scalars(step));
  for (const std::string& name : histories) {
    const auto& slot = engine.layout().slots.at(name);
    const auto* values =
        reinterpret_cast<const float*>(engine.arenas().arena(slot.arena) + slot.offset);
    const auto n_set = std::count_if(values, values + kAmaxHistory, [](float x) { return x > 0; });
    EXPECT_EQ(n_set, 3) << name;
  }
}

}  // namespace
}  // namespace octet::recipes_training_test
