#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "compile/expand_updates.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace octet::compile_update_test {
namespace {

TEST(StateFormat, every_name_of_the_table_gives_its_row_and_no_two_are_equal) {
  std::set<std::string_view> names;
  for (const StateFormatRow& row : state_formats()) {
    EXPECT_EQ(state_format_from_name(row.name), row.format);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.format.expand, row.name.ends_with("+x")) << row.name;
    EXPECT_EQ(row.format.stochastic, row.name.find("_sr") != row.name.npos) << row.name;
  }
  for (const char* name : {"f32", "bf16", "bf16_sr", "e4m3", "e4m3+x", "e5m2", "e5m2+x", "hif8",
                           "hif8+x", "de8", "de8+x"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

TEST(StateFormat, wide_formats_have_nothing_to_expand) {
  for (const char* name : {"f32", "bf16", "bf16_sr"}) {
    EXPECT_EQ(state_format_from_name(std::string(name) + "+x"), state_format_from_name(name));
  }
}

TEST(StateFormat, de8_is_signed_for_m_alone) {
  const StateFormat de8 = state_format_from_name("de8+x");
  EXPECT_EQ(first_moment_dtype(de8), Dtype::de8s);
  EXPECT_EQ(second_moment_dtype(de8), Dtype::de8u);
  EXPECT_EQ(second_moment_dtype(state_format_from_name("hif8")), Dtype::hif8);
}

TEST(StateFormat, other_names_are_refused_with_the_known_ones) {
  for (const char* name : {"", "e4m4", "e4m3+y", "+x", "f16"}) {
    try {
      state_format_from_name(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("e4m3+x, e4m3_sr"), std::string::npos);
    }
  }
  EXPECT_EQ(master_from_name("bf16_sr"), Master::bf16_sr);
  EXPECT_THROW(master_from_name("bf16"), Error);
}

// The update of one weight [10, 30].
Graph update_graph(const OptimPolicy& policy, Dtype weight, UpdateKind rule = UpdateKind::adamw) {
  Graph graph;
  graph.phase = Phase::typed;
  graph.name = "update";
  Builder b(graph);
  const TensorType type{.dtype = weight, .shape = {10, 30}};
  UpdateItem item;
  item.parameter = "layer.weight";
  item.weight = b.input(InputKind::parameter, item.parameter, type);
  item.gradient = b.input(InputKind::batch, "g", type);
  item.rule = rule;
  build_update(b, {item}, policy);
  verify(graph);
  graph = expand_updates(graph, policy);
  verify(graph);
  return graph;
}

std::string input_type(const Graph& graph, const std::string& name) {
  const GraphInput* input = graph.find_input(name);
  return input == nullptr ? "none" : to_string(graph.type(input->value));
}

TEST(BuildUpdate, declares_what_each_state_format_needs) {
  for (const StateFormatRow& m : state_formats()) {
    for (const StateFormatRow& v : state_formats()) {
      OptimPolicy policy;
      policy.state_m = m.format;
      policy.state_v = v.format;
      const Graph graph = update_graph(policy, Dtype::bf16);
      const auto meta = [](const StateFormat& format) {
        return is_quantized(format.dtype) ? "u32[3]" : "none";
      };
      EXPECT_EQ(input_type(graph, "adam_m_meta:layer.weight"), meta(m.format)) << m.name;
      EXPECT_EQ(input_type(graph, "adam_v_meta:layer.weight"), meta(v.format)) << v.name;
      EXPECT_EQ(input_type(graph, "master:layer.weight"), "i16[10,30]");
      const auto draws = [](const StateFormat& format) {
        return format.stochastic || is_quantized(format.dtype);  // codes, or their amax
      };
      EXPECT_EQ(input_type(graph, "attempt"), draws(m.format) || draws(v.format) ? "u32[]" : "none")
          << m.name << v.name;
      for (const GraphInput& input : graph.inputs) {
        const bool lasts = input.kind == InputKind::state || input.kind == InputKind::parameter;
        const GraphOutput* next = graph.find_output("next:" + input.name);
        ASSERT_EQ(next != nullptr, lasts) << input.name;
        if (lasts) {
          EXPECT_EQ(next->updates, input.value);
          EXPECT_EQ(graph.type(next->value), graph.type(input.value));
        }
      }
    }
  }
}

TEST(BuildUpdate, masters_follow_the_policy) {
  struct Row {
    Master master;
    Dtype weight;
    const char* type;
    const char* attempt;
  };
  for (const Row& row : {Row{Master::fp32, Dtype::f32, "none", "none"},
                         Row{Master::fp32, Dtype::bf16, "f32[10,30]", "none"},
                         Row{Master::fp32, Dtype::fp16, "f32[10,30]", "none"},
                         Row{Master::bf16_remainder, Dtype::bf16, "i16[10,30]", "none"},
                         Row{Master::bf16_sr, Dtype::bf16, "none", "u32[]"},
                         Row{Master::bf16_sr, Dtype::f32, "none", "none"}}) {
    OptimPolicy policy;
    policy.master = row.master;
    const Graph graph = update_graph(policy, row.weight);
    EXPECT_EQ(input_type(graph, "master:layer.weight"), row.type);
    EXPECT_EQ(input_type(graph, "attempt"), row.attempt);
  }
}

TEST(BuildUpdate, small_tensors_may_keep_f32_moments) {
  OptimPolicy policy;
  policy.state_m = policy.state_v = state_format_from_name("e4m3_sr+x");
  for (const int64_t below : {300, 301}) {
    policy.f32_below = below;
    const Graph graph = update_graph(policy, Dtype::bf16);  // 300 elements
    const bool small = below == 301;
    EXPECT_EQ(input_type(graph, "adam_m:layer.weight"),
              small ? "f32[10,30]" : "e4m3:run128[10,30]");
    EXPECT_EQ(input_type(graph, "adam_v_meta:layer.weight"), small ? "none" : "u32[3]");
    EXPECT_EQ(input_type(graph, "attempt"), small ? "none" : "u32[]");
  }
}

TEST(BuildUpdate, without_clipping_each_tensor_has_a_flag) {
  OptimPolicy policy;
  EXPECT_EQ(update_graph(policy, Dtype::bf16).find_output("nonfinite:layer.weight"), nullptr);
  policy.clipping = Clipping::none;
  EXPECT_NE(update_graph(policy, Dtype::bf16).find_output("nonfinite:layer.weight"), nullptr);
}

// Neither of them has a state then, and their update no operand behind the flag.
TEST(BuildUpdate, without_momentum_there_is_none) {
  OptimPolicy policy;
  policy.momentum = 0;
  for (const UpdateKind rule : {UpdateKind::sgd, UpdateKind::muon}) {
    for (const Clipping clipping : {Clipping::global_norm, Clipping::none}) {
      policy.clipping = clipping;
      for (const Master master : {Master::fp32, Master::bf16_remainder, Master::bf16_sr}) {
        policy.master = master;
        for (const Dtype weight : {Dtype::f32, Dtype::bf16}) {
          const Graph graph = update_graph(policy, weight, rule);
          EXPECT_EQ(input_type(graph, "momentum:layer.weight"), "none");
          EXPECT_NE(graph.find_output("next:layer.weight"), nullptr);
        }
      }
    }
  }
}

std::vector<double> constants_of(const Graph& graph) {
  std::vector<double> values;
  for (const Node& node : graph.nodes) {
    if (const auto* fill = std::get_if<FillAttrs>(&node.attrs)) values.push_back(fill->value);
  }
  return values;
}

// sqrt(max(1, outputs / inputs)) of a linear [10, 30] is 1, or sqrt(3) where it lies as [inputs,
// outputs]; the other scale is the same.
TEST(BuildUpdate, muons_original_scale_is_of_outputs_and_inputs) {
  OptimPolicy policy;
  policy.muon_scale = MuonScale::original;
  const std::vector<double> out_in =
      constants_of(update_graph(policy, Dtype::f32, UpdateKind::muon));
  policy.in_out = {"layer.weight"};
  const std::vector<double> in_out =
      constants_of(update_graph(policy, Dtype::f32, UpdateKind::muon));
  ASSERT_EQ(in_out.size(), out_in.size());
  int n_other = 0;
  for (size_t i = 0; i < in_out.size(); ++i) {
    if (in_out[i] == out_in[i]) continue;
    EXPECT_NEAR(in_out[i] / out_in[i], std::sqrt(3), 1e-12);
    ++n_other;
  }
  EXPECT_EQ(n_other, 1);
  policy.muon_scale = MuonScale::match_adamw;
  const std::string either = print(update_graph(policy, Dtype::f32, UpdateKind::muon));
  policy.in_out = {};
  EXPECT_EQ(print(update_graph(policy, Dtype::f32, UpdateKind::muon)), either);
}

TEST(BuildUpdate, its_attributes_key_the_parameter_and_print_back) {
  OptimPolicy policy;
  policy.state_m = state_format_from_name("e4m3+x");
  policy.state_v = state_format_from_name("bf16_sr");
  policy.group = 256;
  policy.math = PowerMath::exact;
  policy.seed = 0xFFFFFFFFu;
  const Graph graph = update_graph(policy, Dtype::bf16);
  const auto& attrs = std::get<AdamwAttrs>(graph.nodes.back().attrs);
  EXPECT_EQ(static_cast<uint64_t>(attrs.stream), name_hash("layer.weight"));
  EXPECT_EQ(attrs.seed, 0xFFFFFFFF);
  EXPECT_TRUE(attrs.expand_m && !attrs.expand_v && attrs.stochastic_v && !attrs.stochastic_m);
  EXPECT_EQ(input_type(graph, "adam_m_meta:layer.weight"), "u32[2]");
  EXPECT_EQ(print(parse_graph(print(graph), "update")), print(graph));
}

}  // namespace
}  // namespace octet::compile_update_test
