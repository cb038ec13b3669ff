// The list of ops, their costs and what may happen in place.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op_def.h"

namespace octet::ir_ops_list_test {
namespace {

TEST(OpList, stands_in_the_order_of_the_codes_with_unique_names) {
  std::set<std::string_view> names;
  for (int i = 0; i < kOpCount; ++i) {
    const auto code = static_cast<OpCode>(i);
    const OpDef& def = op_def(code);
    EXPECT_EQ(def.code, code) << i;
    EXPECT_NE(def.infer, nullptr) << def.name;
    EXPECT_TRUE(names.insert(def.name).second) << def.name;
    EXPECT_EQ(find_op(def.name), &def) << def.name;
    EXPECT_GE(def.results.n_required(), 1u) << def.name;
  }
  EXPECT_EQ(find_op("no_such_op"), nullptr);
  EXPECT_LE(kOpCount, 128);
  EXPECT_THROW(op_def(static_cast<OpCode>(kOpCount)), Error);
}

TEST(OpList, facts_agree_with_names_and_attributes) {
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    EXPECT_EQ(def.is_gradient, def.name.ends_with("_grad")) << def.name;
    EXPECT_EQ(def.is_norm, std::holds_alternative<NormAttrs>(def.attrs())) << def.name;
    EXPECT_EQ(def.is_collective, std::holds_alternative<CollectiveAttrs>(def.attrs())) << def.name;
    EXPECT_EQ(def.is_quantizer, def.results[0].name == "q" && def.operands[0].name == "x" &&
                                    def.operands[1].name == "scale" &&
                                    (def.operands.size() == 2 || def.operands[2].name == "draw"))
        << def.name;
    EXPECT_EQ(def.takes_runs, std::holds_alternative<AdamwAttrs>(def.attrs()) ||
                                  std::holds_alternative<StateAttrs>(def.attrs()))
        << def.name;
    EXPECT_EQ(def.takes_layouts, std::holds_alternative<GemmAttrs>(def.attrs()) ||
                                     std::holds_alternative<TransposeAttrs>(def.attrs()))
        << def.name;
    // A recurrence, which goes on from a state.
    EXPECT_EQ(def.is_expanded, def.operands.find("state") != kNoSlot) << def.name;
    EXPECT_EQ(def.is_abstract, std::holds_alternative<UpdateAttrs>(def.attrs())) << def.name;
    if (def.is_view) {
      EXPECT_TRUE(def.moves) << def.name;
    }
    if (def.gathers || def.scatters || def.sums) {
      EXPECT_TRUE(def.is_collective) << def.name;
    }
    if (def.is_transcendental) {
      EXPECT_EQ(def.needs_unscaled, SlotSet({Unary::x})) << def.name;
    }
    if (def.addend != kNoSlot) {
      EXPECT_TRUE(def.operands[def.addend].optional) << def.name;
    }
    // A layer with a factor has a gradient with one.
    const OpDef* gradient = find_op(std::string(def.name) + "_grad");
    if (gradient != nullptr && def.unit_scale != UnitScale::none) {
      EXPECT_NE(gradient->unit_scale, UnitScale::none) << def.name;
    }
    if (def.is_gradient && def.unit_scale != UnitScale::none) {
      const OpDef* layer = find_op(def.name.substr(0, def.name.size() - 5));
      EXPECT_TRUE(layer != nullptr && layer->unit_scale != UnitScale::none) << def.name;
    }
    if (def.store.given_scale != kNoSlot) {
      EXPECT_TRUE(def.operands[def.store.given_scale].optional) << def.name;
    }
  }
}

// Fusing finds the slots of the op with a quantizer by the names of the op without.
TEST(OpList, an_op_that_gives_codes_has_the_operands_of_the_op_and_the_scale) {
  EXPECT_EQ(op_def(OpCode::gemm).quantized, OpCode::gemm);
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    if (!def.quantized) continue;
    const OpDef& quantized = op_def(*def.quantized);
    EXPECT_NE(quantized.store.given_scale, kNoSlot) << def.name;
    for (size_t slot = 0; slot < def.operands.size(); ++slot)
      EXPECT_NE(quantized.operands.find(def.operands[slot].name), kNoSlot)
          << def.name << " " << def.operands[slot].name;
  }
}

// The places of an op's slots are those of the slots' names: kNoSlot where it has none of them.
TEST(OpList, facts_say_where_slots_of_that_name_are) {
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    const SlotList &in = def.operands, &out = def.results;
    const bool has_rstd = in.find("rstd") != kNoSlot || out.find("rstd") != kNoSlot;
    const NormSlots& norm = def.norm;
    EXPECT_EQ(norm.rstd != kNoSlot, has_rstd) << def.name;
    if (has_rstd) {
      const SlotList& statistics = def.is_gradient ? in : out;
      EXPECT_EQ(norm.weight, in.find("weight")) << def.name;
      EXPECT_EQ(norm.bias, in.find("bias")) << def.name;
      EXPECT_EQ(norm.mean, statistics.find("mean")) << def.name;
      EXPECT_EQ(norm.rstd, statistics.find("rstd")) << def.name;
      EXPECT_EQ(norm.known_mean, in.find("known_mean")) << def.name;
      EXPECT_EQ(norm.known_rstd, in.find("known_rstd")) << def.name;
      EXPECT_EQ(norm.dbias, out.find("dbias")) << def.name;
    }
    const bool has_quantizer = in.find("history") != kNoSlot && out.find("nonfinite") != kNoSlot;
    const StoreSlots& store = def.store;
    EXPECT_EQ(store.history != kNoSlot, has_quantizer) << def.name;
    if (has_quantizer) {
      EXPECT_EQ(store.given_scale, in.find("given_scale")) << def.name;
      EXPECT_EQ(store.history, in.find("history")) << def.name;
      EXPECT_EQ(store.scale, out.find("scale")) << def.name;
      EXPECT_EQ(store.nonfinite, out.find("nonfinite")) << def.name;
      EXPECT_EQ(store.next_history, out.find("next_history")) << def.name;
      EXPECT_EQ(store.transposed, out.find(std::string(out[0].name) + "_transposed")) << def.name;
    }
    SlotId kept = 0;
    while (kept < out.size() && !out[kept].name.starts_with("kept_")) ++kept;
    EXPECT_EQ(def.kept, kept < out.size() ? kept : kNoSlot) << def.name;
  }
}

// The names are words that the parser reads, each op's all different; required ones come first.
void expect_good(const SlotList& slots, std::string_view op) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot slot = slots[i];
    EXPECT_TRUE(names.insert(slot.name).second) << op << " " << slot.name;
    EXPECT_EQ(slots.find(slot.name), i) << op << " " << slot.name;
    const bool is_last = slots.has_many() && i + 1 == slots.size();
    EXPECT_EQ(slot.optional, i >= slots.n_required() && !is_last) << op << " " << slot.name;
    for (const char ch : slot.name)
      EXPECT_TRUE((ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '_') << slot.name;
  }
  EXPECT_EQ(slots.find("no_such_slot"), kNoSlot);
}

TEST(OpList, every_slot_has_a_name) {
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    expect_good(def.operands, def.name);
    expect_good(def.results, def.name);
    for (const ScalePlace place : def.scales) {
      if (def.saves) {
        EXPECT_EQ(def.operands[place.scale].name,
                  std::string(def.operands[place.operand].name) + "_scale");
      }
      EXPECT_LT(place.scale, def.operands.size()) << def.name;
    }
    if (def.amax_results == 0) continue;
    EXPECT_EQ(def.results[def.own_results()].name, "amax") << def.name;
    EXPECT_EQ(def.results[def.own_results() + 1].name, "nonfinite") << def.name;
  }
}

TEST(OpList, an_enumerator_is_the_slot_of_its_name) {
  const OpDef& grad = op_def(OpCode::layer_norm_grad);
  EXPECT_EQ(grad.operands[LayerNormGrad::addend].name, "addend");
  EXPECT_EQ(grad.operands.size(), size_t{LayerNormGrad::addend} + 1);
  EXPECT_EQ(grad.results[LayerNormGrad::dbias].name, "dbias");
  EXPECT_TRUE(grad.results[LayerNormGrad::dbias].optional);
  const OpDef& step = op_def(OpCode::adamw_step);
  EXPECT_EQ(step.operands.n_required(), size_t{AdamwStep::found_nonfinite} + 1);
  EXPECT_EQ(step.operands.find("attempt"), AdamwStep::attempt);
  const OpDef& norm = op_def(OpCode::global_norm);
  EXPECT_EQ(norm.operands[GlobalNorm::gradient + 7].name, "gradient");
  EXPECT_FALSE(norm.operands[GlobalNorm::gradient + 7].optional);
}

TEST(OpList, a_gradient_op_belongs_to_an_op) {
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    const std::string name(def.name);
    if (!name.ends_with("_grad")) continue;
    const OpDef* forward = find_op(name.substr(0, name.size() - 5));
    ASSERT_NE(forward, nullptr) << name;
    EXPECT_NE(forward->vjp, nullptr) << name;
  }
}

// One node on inputs of these types, in f32.
Cost cost(OpCode op, const Attrs& attrs, const std::vector<TensorType>& operands) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder builder(graph);
  std::vector<ValueId> ids;
  for (const TensorType& type : operands) {
    ids.push_back(builder.input(InputKind::batch, std::to_string(ids.size()), type));
  }
  builder.emit(op, attrs, ids);
  return cost_of(graph, graph.nodes[0]);
}

TensorType f32(Shape shape) {
  return {.dtype = Dtype::f32, .shape = std::move(shape)};
}
TensorType i32_type(Shape shape) {
  return {.dtype = Dtype::i32, .shape = std::move(shape)};
}

TEST(OpCost, counts_products_and_bytes) {
  const Cost gemm = cost(OpCode::gemm, GemmAttrs{.trans_b = true}, {f32({3, 7}), f32({5, 7})});
  EXPECT_EQ(gemm.flops, 2.0 * 3 * 5 * 7);
  EXPECT_EQ(gemm.bytes, 4.0 * (3 * 7 + 5 * 7 + 3 * 5));
  const DotAttrs batched{{0}, {0}, {2}, {1}};
  EXPECT_EQ(cost(OpCode::dot, batched, {f32({2, 3, 4}), f32({2, 4, 5})}).flops,
            2.0 * 2 * 3 * 4 * 5);
  const Cost add = cost(OpCode::add, NoAttrs{}, {f32({6}), f32({6})});
  EXPECT_EQ(add.flops, 6);
  EXPECT_EQ(add.bytes, 4.0 * 18);
}

TEST(OpCost, a_causal_mask_halves_attention) {
  AttentionAttrs a{.batch = 2, .q_len = 8, .kv_len = 8, .heads = 4, .kv_heads = 2, .head_dim = 3};
  const std::vector<TensorType> in{f32({16, 12}), f32({16, 6}), f32({16, 6})};
  EXPECT_EQ(cost(OpCode::attention, a, in).flops, 4.0 * 2 * 4 * 3 * (8 * 9 / 2));
  a.mask = AttentionMask::full;
  EXPECT_EQ(cost(OpCode::attention, a, in).flops, 4.0 * 2 * 4 * 3 * 8 * 8);
}

TEST(OpCost, a_lookup_moves_only_the_rows_it_reads) {
  const Cost c = cost(OpCode::embedding, NoAttrs{}, {f32({1000, 4}), i32_type({3})});
  EXPECT_EQ(c.flops, 0);
  EXPECT_EQ(c.bytes, 4.0 * 3 + 2 * 4.0 * 3 * 4);
}

TEST(OpInplace, pairs_name_a_result_and_an_operand) {
  for (int i = 0; i < kOpCount; ++i) {
    const OpDef& def = op_def(static_cast<OpCode>(i));
    for (const InplacePair& pair : def.inplace) {
      EXPECT_LT(pair.operand, def.operands.size()) << def.name;
      EXPECT_LT(pair.result, def.results.size()) << def.name;
    }
  }
}

TEST(OpVjp, a_linears_gradients_are_gemms_with_roles) {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input(InputKind::batch, "x", {Dtype::real, {5, 3}});
  const ValueId w = b.input(InputKind::parameter, "w", {Dtype::real, {4, 3}});
  const ValueId y = b.gemm(x, w, {.trans_b = true, .role = GemmRole::forward});
  const ValueId dy = b.fill_like(y, 1);
  const Node node = graph.nodes[0];
  const auto grads = op_def(OpCode::gemm).vjp(b, {.node = node, .dresults = {&dy, 1}});
  const Node& dgrad = graph.node(graph.values[grads[0]].producer);
  const Node& wgrad = graph.node(graph.values[grads[1]].producer);
  EXPECT_EQ(dgrad.operands, (std::vector<ValueId>{dy, w}));
  EXPECT_EQ(dgrad.attrs, Attrs(GemmAttrs{.role = GemmRole::dgrad}));
  EXPECT_EQ(wgrad.operands, (std::vector<ValueId>{dy, x}));
  EXPECT_EQ(wgrad.attrs, Attrs(GemmAttrs{.trans_a = true, .role = GemmRole::wgrad}));
  EXPECT_EQ(b.shape(grads[1]), (Shape{4, 3}));
}

}  // namespace
}  // namespace octet::ir_ops_list_test
