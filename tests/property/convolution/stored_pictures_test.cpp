// Values of convolutional networks that `coat` keeps, and what its backward pass makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "backends/cpu/reference/reference.h"
#include "base/error.h"
#include "nn/convolution.h"
#include "passes/autodiff.h"
#include "passes/memory/recompute.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"

namespace octet::stored_pictures {
namespace {

using testing::HasSubstr;

using Numbers = std::vector<double>;

Picture block(Blocks& b, const Picture& x, int layer) {
  b.enter(layer, fmt::format("l{}.", layer));
  Picture y = convolution(b, x, "conv1", 20, {.padding = 1});
  y = relu(b, batch_norm(b, y, "bn1"), "act");
  y = convolution(b, y, "dw", 20, {.padding = 1, .groups = 20});
  y = batch_norm(b, y, "bn2");
  return relu(b, add(b, convolution(b, y, "conv2", b.shape(x.x)[1], {.kernel = 1}), x), "out");
}

// Two residual blocks behind a convolution of no layer; "loss" is a sum of products with dout.
Graph logical_graph() {
  const ModelSpec spec = resolved({.kind = ModelKind::resnet, .image_size = 8, .channels = 3});
  const auto apply = [](Blocks& b) {
    b.enter(-1, "");
    const Picture x =
        relu(b, convolution(b, picture_of(b, b.input("pixels")), "first", 16, {.padding = 1}), "f");
    return block(b, block(b, x, 0), 1);
  };
  Blocks declared(spec);
  apply(declared);
  Blocks b(spec, {.batch = 2, .statistics = BatchStatistics::own}, {}, declared.parameters());
  const Picture y = apply(b);
  Builder& builder = b.builder();
  const ValueId dout = builder.input(InputKind::batch, "dout", real_type(b.shape(y.x)));
  builder.output("y", y.x);
  builder.output("loss", builder.reduce_sum(builder.mul(y.x, dout), {0, 1}));
  return simplify(autodiff(b.take_graph()));
}

Graph typed_by(const char* name, RecipeOptions options = {}) {
  const Recipe recipe = chosen_recipe(name, options);
  options.weight_copy = WeightCopy::per_use;
  const Graph graph = recipe.apply(recipe, logical_graph(), options);
  return recompute(graph, {.what = recipe.recompute});
}

reference::Tensors inputs_of(const Graph& graph) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  reference::Tensors inputs;
  for (const GraphInput& input : graph.inputs) {
    Numbers values(static_cast<size_t>(graph.type(input.value).n_elems()));
    const bool is_weight = input.name.ends_with("weight") && values.size() > 20;
    for (double& value : values) value = (is_weight ? 0.2 : 1) * normal(random);
    if (input.name.ends_with("running_var"))
      for (double& value : values) value = 0.5 + std::abs(value);
    inputs[input.name] = values;
  }
  return inputs;
}

// Values with more than one axis that the layers' backward pass reads of the forward pass, no
// weights among them.
std::set<ValueId> kept_values(const Graph& graph) {
  std::set<ValueId> kept;
  for (const Node& node : graph.nodes) {
    if (node.tag.role != Role::backward || node.tag.layer < 0) continue;
    for (const ValueId id : node.operands) {
      const Node* made = id == kNoValue ? nullptr : graph.producer(id);
      if (made == nullptr || made->tag.role != Role::forward) continue;
      if (graph.type(id).shape.size() > 1) kept.insert(id);
    }
  }
  return kept;
}

double cosine(const Numbers& a, const Numbers& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  return ab / std::sqrt(aa * bb);
}

TEST(StoredPictures, are_all_that_is_kept_and_lie_in_groups_of_16) {
  const Graph graph = typed_by("coat");
  int n_codes = 0;
  for (const ValueId id : kept_values(graph)) {
    const Node& made = *graph.producer(id);
    EXPECT_EQ(made.op, OpCode::quantize_groups) << made.tag.origin;
    if (made.results.front() != id) continue;
    ++n_codes;
    EXPECT_EQ(graph.type(id).dtype, Dtype::e4m3);
    EXPECT_EQ(graph.type(id).granularity, (Granularity{Granularity::Kind::group, 16, Dtype::bf16}));
  }
  EXPECT_EQ(n_codes, 2 * 3 + 2);  // what each block's convolutions give, and what it is given
}

TEST(StoredPictures, leave_the_forward_pass_as_it_is_and_gradients_near) {
  const Graph coat = typed_by("coat"), without = typed_by("fp8_linear"), exact = typed_by("fp32");
  const auto got = reference::interpret(coat, inputs_of(coat));
  const auto fp8 = reference::interpret(without, inputs_of(without));
  const auto f32 = reference::interpret(exact, inputs_of(exact));
  EXPECT_EQ(got.at("y"), fp8.at("y"));
  int n = 0, n_changed = 0;
  for (const auto& [name, values] : f32) {
    if (!name.starts_with("grad:")) continue;
    ++n;
    EXPECT_GT(cosine(got.at(name), values), 0.85) << name;
    n_changed += got.at(name) != fp8.at(name) ? 1 : 0;
  }
  EXPECT_GE(n, 15);
  EXPECT_GE(n_changed, 10);
}

TEST(StoredPictures, that_the_forward_pass_should_read_are_refused) {
  try {
    typed_by("coat", {.forward_reads = ForwardReads::stored});
    FAIL() << "the forward pass reads what it made";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("recipe.forward_reads: expected unquantized"));
  }
}

}  // namespace
}  // namespace octet::stored_pictures
