// Codes with one scale for all rows are read as codes in groups whose scales are all the same.
#include "table.h"

namespace octet::fusion {
namespace {

// The op on operands of which those in `stored` are codes; their scales follow the plain ones.
struct StoredCase {
  OpCode op;
  Attrs attrs;
  size_t n_wide;    // before the codes
  size_t n_stored;  // each with scales
  bool is_scaled;   // a quantizer's scale behind
  std::vector<ResultType> results = {};
};

OpCase op_case(const StoredCase& s, const Shape& shape, bool has_one, double value) {
  OpCase c{.name = "stored", .op = s.op, .attrs = s.attrs};
  const OperandCase x = codes(shape, Dtype::e4m3, has_one ? "tensor" : "1x16");
  const TensorType type = scale_type(x.type);
  OperandCase scale = filled(type.shape, type.dtype, value);
  scale.is_known = has_one;
  c.operands.insert(c.operands.end(), s.n_wide, tensor(shape));
  c.operands.insert(c.operands.end(), s.n_stored, x);
  c.operands.insert(c.operands.end(), s.n_stored, scale);
  if (s.is_scaled) c.operands.push_back(scalar(0.02));
  c.typed_only = true;
  c.results = s.results;
  return c;
}

Tensors run_case(const OpCase& c, const OpCase& values, Backend& gpu) {
  const Graph graph = case_graph(c, Dtype::bf16);
  EXPECT_TRUE(gpu.catalogue->choose(graph, graph.nodes.back()).has_value()) << print(graph);
  Tensors inputs = case_inputs(values, 3);
  for (const GraphInput& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    auto& data = inputs.at(input.name);
    if (data.size() > static_cast<size_t>(type.n_elems()))
      data.resize(static_cast<size_t>(type.n_elems()));
  }
  return run_plan(graph, inputs, gpu);
}

std::vector<StoredCase> stored_cases() {
  std::vector<StoredCase> cases = {{OpCode::gated_act, GatedActAttrs{}, 0, 2, false},
                                   {OpCode::gated_act_grad, GatedActAttrs{}, 1, 2, false},
                                   {OpCode::gelu, GeluAttrs{}, 0, 1, false},
                                   {OpCode::gelu_grad, GeluAttrs{}, 1, 1, false}};
  for (const int layout : {0, 1, 2}) {
    const ResultType by_row = Dtype::e4m3, type = layout == 1 ? by_row.transposed(16) : by_row;
    const QuantizeAttrs q;
    const bool both = layout == 2;
    cases.push_back(
        {OpCode::gated_act_quantize, GatedActQuantizeAttrs{{}, q, both}, 0, 2, true, {type}});
    cases.push_back({OpCode::gelu_quantize, GeluQuantizeAttrs{{}, q, both}, 0, 1, true, {type}});
  }
  return cases;
}

TEST(one_scale, is_read_as_scales_that_are_all_the_same) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Shape& shape :
       {Shape{2, 16}, Shape{17, 48}, Shape{128, 256}, Shape{300, 208}, Shape{19, 40}}) {
    for (const StoredCase& s : stored_cases()) {
      const OpCase groups = op_case(s, shape, false, 0.375), one = op_case(s, shape, true, 0.375);
      expect_same(run_case(one, groups, *gpu), run_case(groups, groups, *gpu),
                  print(case_graph(one, Dtype::bf16)));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace octet::fusion
