#include "bench/node_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "formats/codec.h"
#include "ir/op_def.h"
#include "plan/row_unavailable.h"

namespace octet {
namespace {

// Enough different values that no kernel can be lucky; repeated to the tensor's size. A prime, so
// that rows differ: products of rows that repeat run faster.
constexpr size_t kPattern = 1'048'573;

std::vector<std::byte> made_up(const TensorType& type) {
  const RandomStream random{.name = name_hash("node_runner")};
  const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
  const size_t n = std::min(kPattern, static_cast<size_t>(type.n_elems()));
  std::vector<std::byte> pattern(n * width);
  for (size_t i = 0; i < n; ++i) {
    const float value = 0.25f + 0.75f * random.uniform(i);
    uint32_t bits = 0;
    if (type.dtype == Dtype::f32) {
      bits = bits_of(value);
    } else if (is_float(type.dtype)) {
      // A format of powers of two alone has none that is nearest.
      bits = encode(type.dtype, value, type.dtype == Dtype::e8m0 ? Rounding::ceil : Rounding::near);
    } else if (type.dtype == Dtype::i32) {
      bits = random.bits(i) % 16;
    }
    std::memcpy(pattern.data() + i * width, &bits, width);
  }
  std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
  for (size_t begin = 0; begin < bytes.size(); begin += pattern.size()) {
    std::memcpy(bytes.data() + begin, pattern.data(),
                std::min(pattern.size(), bytes.size() - begin));
  }
  return bytes;
}

bool is_state(const Graph& graph, ValueId id) {
  const GraphInput* input = graph.input_of(id);
  return input != nullptr &&
         (input->kind == InputKind::parameter || input->kind == InputKind::state);
}

// The node alone: its operands are inputs, its results outputs.
Graph alone(const Graph& from, const Node& node) {
  Graph graph;
  graph.name = "node";
  graph.phase = from.phase;
  Node copy = node;
  std::map<ValueId, ValueId> moved;
  for (ValueId& id : copy.operands) {
    if (id == kNoValue) continue;
    const auto [it, added] = moved.emplace(id, static_cast<ValueId>(graph.values.size()));
    if (added) {
      graph.inputs.push_back({.value = it->second,
                              .kind = is_state(from, id) ? InputKind::state : InputKind::batch,
                              .name = fmt::format("in{}", graph.inputs.size())});
      graph.values.push_back({.type = from.type(id)});
    }
    id = it->second;
  }
  std::vector<size_t> output_of(copy.results.size());
  for (size_t i = 0; i < copy.results.size(); ++i) {
    if (copy.results[i] == kNoValue) continue;
    const auto id = static_cast<ValueId>(graph.values.size());
    graph.values.push_back(
        {.type = from.type(node.results[i]), .producer = 0, .result_index = static_cast<int>(i)});
    copy.results[i] = id;
    output_of[i] = graph.outputs.size();
    graph.outputs.push_back({.name = fmt::format("out{}", i), .value = id});
  }
  for (const InplacePair& pair : op_def(node.op).inplace) {
    const ValueId id = copy.in(pair.operand), result = copy.out(pair.result);
    if (id == kNoValue || result == kNoValue || !is_state(graph, id)) continue;
    if (graph.type(id) == graph.type(result)) graph.outputs[output_of[pair.result]].updates = id;
  }
  graph.nodes.push_back(std::move(copy));
  return graph;
}

}  // namespace

NodeRunner::NodeRunner(const Graph& graph, const Node& node, Device& device, Catalogue& catalogue) {
  const Graph single = alone(graph, node);
  bind_available_rows(catalogue,
                      [&] { alone_ = std::make_unique<BoundGraph>(single, device, catalogue); });
  CHECK(alone_->plan.steps.size() == 1);
  write_made_up(alone_->bound, single);
}

void write_made_up(BoundPlan& bound, const Graph& graph) {
  for (const GraphInput& input : graph.inputs) {
    const std::vector<std::byte> bytes = made_up(graph.type(input.value));
    bound.write_input(input.name, bytes.data(), std::ssize(bytes));
  }
}

std::string shape_text(const Graph& graph, const Node& node) {
  std::vector<std::string> from;
  for (const ValueId id : node.operands) {
    if (id != kNoValue && !graph.type(id).shape.empty())
      from.push_back(to_string(graph.type(id).shape));
  }
  constexpr size_t kMax = 3;
  if (from.size() > kMax) from.resize(kMax), from.emplace_back("...");
  std::vector<std::string> to;
  for (const ValueId id : node.results) {
    if (id != kNoValue && !graph.type(id).shape.empty())
      to.push_back(to_string(graph.type(id).shape));
  }
  return fmt::format("{} -> {}", fmt::join(from, " x "), fmt::join(to, ", "));
}

}  // namespace octet
