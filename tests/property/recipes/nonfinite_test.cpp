// A NaN or Inf in any gradient changes no state byte and no weight, whatever the recipe and the
// format of the states, and the step after goes on; with gradient release that holds for the
// tensor.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "formats/codec.h"
#include "optim/state_format.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_nonfinite_test {
namespace {

constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};

using Bytes = std::map<std::string, std::vector<std::byte>>;

// Parameters, states and copies.
Bytes state_of(TrainEngine& engine) {
  Bytes bytes;
  for (const auto& [name, slot] : engine.layout().slots) {
    if (slot.arena != Arena::persistent) continue;
    const std::byte* at = engine.arenas().arena(slot.arena) + slot.offset;
    bytes[name] = {at, at + slot.type.n_bytes()};
  }
  return bytes;
}

// The parameter whose tensor this is: "adam_m:p" belongs to p. Copies in codes belong to their
// group, whose scale is common.
std::string owner(const std::string& slot) {
  if (slot.starts_with("copy")) return "a copy";
  return slot.substr(slot.rfind(':') == std::string::npos ? 0 : slot.rfind(':') + 1);
}

std::set<std::string> changed(const Bytes& before, const Bytes& after) {
  std::set<std::string> owners;
  for (const auto& [name, bytes] : before) {
    if (after.at(name) != bytes) owners.insert(owner(name));
  }
  return owners;
}

// Overwrites the last element of a value right before a node runs.
class Injector {
 public:
  explicit Injector(TrainEngine& engine) : engine_(engine) {}

  static void put(const Plan& plan, ValueId id, Arenas& arenas, float bad) {
    const Buffer& buffer =
        plan.buffers[static_cast<size_t>(plan.buffer_of[static_cast<size_t>(id)])];
    const TensorType& type = plan.graph.type(id);
    std::byte* at = arenas.arena(buffer.arena) + buffer.offset + type.n_bytes();
    if (type.dtype == Dtype::f32) {
      std::memcpy(at - 4, &bad, 4);
    } else {
      const uint16_t fp16 = std::isnan(bad) ? 0x7E00 : bad > 0 ? 0x7C00 : 0xFC00;
      const uint16_t code = type.dtype == Dtype::bf16 ? bf16_from_f32(bad) : fp16;
      std::memcpy(at - 2, &code, 2);
    }
  }

  // The parameter's gradient, before the first norm reads it.
  void spoil_gradient(const std::string& parameter, float bad) {
    engine_.observe([this, parameter, bad](const Plan& plan, const PlanStep& step, bool before) {
      const Node& node = plan.graph.node(step.node);
      if (!before || node.op != OpCode::global_norm || done_) return;
      for (const Node& update : plan.graph.nodes) {
        if (update.op != OpCode::adamw_step) continue;
        if (plan.graph.input_of(update.operands[0])->name != parameter) continue;
        const auto& read = node.operands;
        if (std::find(read.begin(), read.end(), update.operands[1]) == read.end()) continue;
        put(plan, update.operands[1], engine_.arenas(), bad);
        done_ = true;
      }
    });
  }
  // The first operand of the layer's node with this op.
  void spoil_operand(OpCode op, int layer, float bad) {
    engine_.observe([this, op, layer, bad](const Plan& plan, const PlanStep& step, bool before) {
      const Node& node = plan.graph.node(step.node);
      if (!before || node.op != op || node.tag.layer != layer || done_) return;
      put(plan, node.operands[0], engine_.arenas(), bad);
      done_ = true;
    });
  }
  bool done() const { return done_; }
  void stop() { engine_.observe({}); }

 private:
  TrainEngine& engine_;
  bool done_ = false;
};

std::vector<std::string> parameters() {
  std::vector<std::string> names;
  for (const ParameterSpec& p : model_parameters(tiny::spec())) names.push_back(p.name);
  return names;
}

StepOutcome run_step(TrainEngine& engine, const ProgramOptions& options, uint32_t step) {
  std::vector<Batch> parts;
  for (int i = 0; i < options.accumulate; ++i)
    parts.push_back(tiny::batch(options.train, step * 7 + static_cast<uint32_t>(i)));
  StepScalars scalars = tiny::scalars(step);
  if (options.optim.clipping == Clipping::none) scalars.clip = 0;
  return engine.step(parts, scalars);
}

// A step with this gradient spoilt between two good ones.
void expect_refused(const ProgramOptions& options, const std::string& parameter, float bad,
                    const std::string& what) {
  TrainEngine engine(options, *tiny::backend().device, *tiny::backend().catalogue);
  tiny::start(engine);
  EXPECT_FALSE(run_step(engine, options, 0).nonfinite) << what;
  const Bytes before = state_of(engine);
  Injector injector(engine);
  injector.spoil_gradient(parameter, bad);
  const StepOutcome refused = run_step(engine, options, 1);
  ASSERT_TRUE(injector.done()) << what;
  injector.stop();
  EXPECT_TRUE(refused.nonfinite) << what;
  const std::set<std::string> moved = changed(before, state_of(engine));
  if (options.optim.clipping == Clipping::none) {
    EXPECT_EQ(refused.skipped_tensors, std::vector{parameter}) << what;
    EXPECT_EQ(moved.count(parameter), 0u) << what;
    EXPECT_GE(moved.size(), parameters().size() - 1) << what;
  } else {
    EXPECT_EQ(moved, std::set<std::string>{}) << what;
    EXPECT_TRUE(refused.skipped_tensors.empty()) << what;
  }
  const Bytes held = state_of(engine);
  const StepOutcome next = run_step(engine, options, 2);
  EXPECT_FALSE(next.nonfinite) << what;
  EXPECT_TRUE(std::isfinite(next.loss)) << what;
  EXPECT_EQ(changed(held, state_of(engine)).count(parameter), 1u) << what;
}

TEST(Nonfinite, any_gradient_stops_the_step_under_every_recipe) {
  for (const Recipe* recipe : all_recipes()) {
    ProgramOptions options = tiny::options(recipe->name);
    options.optim.state_m = options.optim.state_v = state_format_from_name(recipe->state);
    size_t i = 0;
    for (const std::string& parameter : parameters()) {
      const float bad = kBad[i++ % std::size(kBad)];
      expect_refused(options, parameter, bad, fmt::format("{} {}", recipe->name, parameter));
    }
  }
}

TEST(Nonfinite, every_state_format_keeps_its_bytes) {
  for (const StateFormatRow& row : state_formats()) {
    for (const Clipping clipping : {Clipping::global_norm, Clipping::none}) {
      for (const float bad : kBad) {
        ProgramOptions options = tiny::options("bf16");
        options.optim.state_m = options.optim.state_v = row.format;
        options.optim.clipping = clipping;
        expect_refused(options, "model.layers.1.mlp.up_proj.weight", bad, std::string(row.name));
      }
    }
  }
}

TEST(Nonfinite, released_gradients_stop_their_own_tensor) {
  for (const Recipe* recipe : all_recipes()) {
    ProgramOptions options = tiny::options(recipe->name);
    options.optim.clipping = Clipping::none;
    size_t i = 0;
    for (const std::string& parameter : parameters()) {
      const float bad = kBad[i++ % std::size(kBad)];
      expect_refused(options, parameter, bad, fmt::format("{} {}", recipe->name, parameter));
    }
  }
}

TEST(Nonfinite, accumulated_steps_and_histories_are_held) {
  for (const char* recipe : {"fp8_linear", "coat-fast"}) {
    ProgramOptions options = tiny::options(recipe);
    options.recipe_options.scaling = Scaling::delayed;
    options.accumulate = 3;
    for (const float bad : kBad) expect_refused(options, "lm_head.weight", bad, recipe);
  }
}

// An Inf among output gradients becomes the largest code: the products made of it look finite.
TEST(Nonfinite, what_a_quantizer_hid_stops_every_tensor_made_after_it) {
  for (const char* recipe : {"fp8_linear", "coat", "hif8", "coat-fast"}) {
    for (const Clipping clipping : {Clipping::global_norm, Clipping::none}) {
      ProgramOptions options = tiny::options(recipe);
      options.optim.clipping = clipping;
      TrainEngine engine(options, *tiny::backend().device, *tiny::backend().catalogue);
      tiny::start(engine);
      run_step(engine, options, 0);
      const Bytes before = state_of(engine);
      Injector injector(engine);
      injector.spoil_operand(OpCode::gated_act_grad, 0, kBad[1]);
      const StepOutcome outcome = run_step(engine, options, 1);
      ASSERT_TRUE(injector.done());
      EXPECT_TRUE(outcome.nonfinite) << recipe;
      const std::set<std::string> moved = changed(before, state_of(engine));
      if (clipping == Clipping::global_norm) {
        EXPECT_EQ(moved, std::set<std::string>{}) << recipe;
        continue;
      }
      // Layer 1 and the head were done by then.
      for (const std::string& name : parameters()) {
        const bool earlier = name.find("layers.1.") != std::string::npos ||
                             name == "lm_head.weight" || name == "model.norm.weight";
        const bool later = name.find("layers.0.") != std::string::npos &&
                           name.find("down_proj") == std::string::npos;
        const bool first = name == "model.embed_tokens.weight";
        if (earlier) {
          EXPECT_EQ(moved.count(name), 1u) << recipe << " " << name;
        } else if (later || first) {
          EXPECT_EQ(moved.count(name), 0u) << recipe << " " << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octet::recipes_nonfinite_test
