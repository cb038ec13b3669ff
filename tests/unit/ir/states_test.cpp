#include "ir/states.h"

#include <gtest/gtest.h>

#include <map>

#include "ir/builder.h"
#include "ir/parse.h"
#include "ir/print.h"

namespace octet::ir_states_test {
namespace {

using enum StateUse;

// Checkpoints and random streams are keyed by these: they never change.
const std::map<StateUse, std::string> kNames = {
    {master, "master:w"},
    {master_remainder, "master:w"},
    {moment1, "adam_m:w"},
    {moment2, "adam_v:w"},
    {moment1_meta, "adam_m_meta:w"},
    {moment2_meta, "adam_v_meta:w"},
    {momentum, "momentum:w"},
    {momentum_meta, "momentum_meta:w"},
    {accumulator, "accumulated:w"},
    {accumulated_history, "accumulated:amax_history:w"},
    {accumulated_rescale, "accumulated:rescale_factor:w"},
    {accumulated_flag, "accumulated:quantizer_flag"},
    {accumulated_statistic, "accumulated:statistic:w"},
    {amax_history, "amax_history:w"},
    {rescale_factor, "rescale_factor:w"},
    {fixed_scale, "fixed_scale:w"},
    {loss_scale, "loss_scale:w"},
    {weight_quantized, "copy:w"},
    {weight_quantized_t, "copy_t:w"},
    {weight_scale, "copy_scale:w"},
    {kv_cache, "kv_cache:w"},
};

Dtype dtype_of(StateUse use) {
  return use == master_remainder ? Dtype::i16 : Dtype::f32;
}

std::string owner_of(StateUse use) {
  return state_def(use).owner == StateOwner::function ? "" : "w";
}

TEST(States, of_every_use_are_looked_at) {
  for (int i = 1; i <= static_cast<int>(kv_cache); ++i) {
    EXPECT_TRUE(kNames.contains(static_cast<StateUse>(i))) << i;
    EXPECT_EQ(state_def(static_cast<StateUse>(i)).use, static_cast<StateUse>(i));
  }
  EXPECT_EQ(kNames.size(), static_cast<size_t>(kv_cache));
}

TEST(States, names_in_files_stay) {
  for (const auto& [use, name] : kNames) EXPECT_EQ(state_name(use, owner_of(use)), name);
}

TEST(States, a_name_says_use_and_owner) {
  for (const auto& [use, name] : kNames) {
    EXPECT_EQ(state_key(name, dtype_of(use)), (StateKey{use, owner_of(use)})) << name;
  }
  EXPECT_EQ(state_key("layers.0.weight", Dtype::bf16), StateKey{});
  EXPECT_EQ(state_key("accumulated:quantizer_flag.weight", Dtype::f32),
            (StateKey{accumulator, "quantizer_flag.weight"}));
}

TEST(States, what_a_function_keeps_for_itself_is_in_no_checkpoint) {
  for (const auto& [use, name] : kNames) {
    const StateDef& def = state_def(use);
    const bool lasts = def.kind == InputKind::state && def.arena == Arena::persistent &&
                       def.role != MemoryRole::activations;
    EXPECT_EQ(def.in_checkpoint, lasts) << name;
    EXPECT_EQ(def.on_skip == OnSkip::within_step, def.arena == Arena::step) << name;
    EXPECT_EQ(def.on_skip == OnSkip::derived, def.kind == InputKind::derived) << name;
    const bool is_of_update = def.owner == StateOwner::parameter && def.kind == InputKind::state;
    EXPECT_EQ(def.ranks == OnRanks::cut, is_of_update) << name;
    // A state gathered within a step is of the same owner, and of no file.
    if (def.gathered_in == none) continue;
    EXPECT_EQ(state_def(def.gathered_in).owner, def.owner) << name;
    EXPECT_EQ(state_def(def.gathered_in).on_skip, OnSkip::within_step) << name;
  }
}

TEST(States, a_graph_input_carries_its_use_through_text) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder builder(graph);
  for (const auto& [use, name] : kNames) {
    if (use == master) continue;  // the name of the remainder
    builder.state(use, owner_of(use), {.dtype = dtype_of(use), .shape = {4}});
    EXPECT_EQ(graph.inputs.back().key, (StateKey{use, owner_of(use)}));
    EXPECT_EQ(graph.inputs.back().kind, state_def(use).kind);
  }
  EXPECT_EQ(parse_graph(print(graph), "text"), graph);
}

TEST(States, names_of_outputs_are_taken_apart_as_they_were_made) {
  EXPECT_EQ(gradient_parameter(gradient_name("w")), "w");
  EXPECT_EQ(nonfinite_parameter(nonfinite_name("w")), "w");
  EXPECT_EQ(gradient_parameter(nonfinite_name("w")), std::nullopt);
  EXPECT_TRUE(is_gradient_name(gradient_name("w")));
  EXPECT_EQ(next_name("w"), "next:w");
}

}  // namespace
}  // namespace octet::ir_states_test
