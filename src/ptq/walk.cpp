#include "ptq/walk.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "compile/lower.h"
#include "infer/batch_inputs.h"
#include "ir/builder.h"
#include "nn/model.h"
#include "passes/lower/fuse.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"
#include "plan/row_unavailable.h"
#include "ptq/linears.h"

namespace octet {
namespace {

std::string value_name(ValueId id) {
  return fmt::format("value.{}", id);
}

// Nodes [first, end) of a graph as a graph: what they read of before becomes inputs, and `kept`
// their outputs. Parameters stay what they are.
Graph piece_of(const Graph& whole, NodeId first, NodeId end, const std::set<ValueId>& kept) {
  Graph piece;
  piece.name = whole.name;
  piece.phase = whole.phase;
  Builder builder(piece);
  std::map<ValueId, ValueId> map{{kNoValue, kNoValue}};
  const auto declare = [&](ValueId id) {
    if (map.contains(id)) return;
    const GraphInput* input = whole.input_of(id);
    const bool is_parameter = input != nullptr && is_model_tensor(input->kind);
    map[id] = builder.input(is_parameter ? input->kind : InputKind::batch,
                            is_parameter ? input->name : value_name(id), whole.type(id));
  };
  for (NodeId n = first; n < end; ++n) {
    const Node& node = whole.node(n);
    for (const ValueId id : node.operands) {
      const bool is_made_here = id != kNoValue && whole.value(id).producer >= first;
      if (id != kNoValue && !is_made_here) declare(id);
    }
  }
  for (NodeId n = first; n < end; ++n) {
    const Node& node = whole.node(n);
    builder.tag = node.tag;
    ValueIds operands;
    for (const ValueId id : node.operands) operands.push_back(map.at(id));
    const auto results =
        builder.emit_typed(node.op, node.attrs, operands, result_types(whole, node));
    for (size_t i = 0; i < node.results.size(); ++i) map[node.results[i]] = results[i];
  }
  for (const ValueId id : kept) builder.output(value_name(id), map.at(id));
  return remove_dead(piece);
}

}  // namespace

Graph typed_forward(const ModelSpec& spec, const Batch& rows) {
  const BatchSize size{.batch = rows.batch, .seq = rows.seq};
  const Recipe& recipe = find_recipe("fp32");
  return recipe.apply(recipe, simplify(build_model(spec, size, ModelOutputs::outputs).graph), {});
}

SmallPlan::SmallPlan(const Graph& typed, Backend& backend) {
  bind_available_rows(*backend.catalogue, [&] {
    bound_ = std::make_unique<BoundGraph>(lower(fuse(typed), *backend.catalogue), *backend.device,
                                          *backend.catalogue);
  });
}

ModelWalk::ModelWalk(const Graph& graph, std::vector<Batch> rows, Backend& backend,
                     ReadParameter read)
    : graph_(graph),
      rows_(std::move(rows)),
      backend_(backend),
      read_(std::move(read)),
      last_use_(graph.values.size(), kNoNode),
      is_of_pictures_(picture_values(graph)) {
  CHECK(!rows_.empty());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId id : graph.nodes[n].operands) {
      if (id != kNoValue) last_use_[static_cast<size_t>(id)] = static_cast<NodeId>(n);
    }
  }
  feed_inputs();
}

void ModelWalk::feed_inputs() {
  for (const GraphInput& input : graph_.inputs) {
    if (input.kind != InputKind::batch) continue;
    auto& batches = values_[input.value];
    const TensorType& type = graph_.type(input.value);
    for (const Batch& batch : rows_) {
      CHECK(batch.seq == rows_.front().seq && batch.batch <= rows_.front().batch);
      std::vector<std::byte> bytes = input_bytes(batch, input.name, type.dtype);
      // A batch that is smaller repeats its rows: what is measured of a whole tensor stays.
      const auto n = static_cast<size_t>(type.n_bytes());
      for (size_t i = 0; bytes.size() < n; ++i) bytes.push_back(bytes[i]);
      batches.push_back(std::move(bytes));
    }
  }
}

// No token reads what stands where padding does.
void ModelWalk::repeat_over_padding(ValueId id, const Batch& batch,
                                    std::span<std::byte> bytes) const {
  const Shape& shape = graph_.type(id).shape;
  if (is_of_pictures_[static_cast<size_t>(id)]) return;
  if (batch.lengths.empty() || shape.empty() || shape[0] != rows_.front().batch * batch.seq) return;
  const size_t width = bytes.size() / static_cast<size_t>(shape[0]);
  const auto row = [&](int64_t i) { return bytes.subspan(static_cast<size_t>(i) * width, width); };
  std::vector<int64_t> held, padding;
  for (int64_t i = 0; i < batch.batch * batch.seq; ++i) {
    const bool is_held = i % batch.seq < batch.lengths[static_cast<size_t>(i / batch.seq)];
    (is_held ? held : padding).push_back(i);
  }
  for (size_t i = 0; i < padding.size() && !held.empty(); ++i)
    std::ranges::copy(row(held[i % held.size()]), row(padding[i]).begin());
}

FakeQuantizeInputs ModelWalk::take_of(const Graph& piece, const FakeQuantizeInputs& inputs) {
  FakeQuantizeInputs here{.residuals = inputs.residuals};
  for (const GraphInput& input : piece.inputs) {
    if (auto found = later_.extract(input.name)) here.linears.insert(std::move(found));
  }
  return here;
}

void ModelWalk::run_to(NodeId node, std::span<const ValueId> wanted,
                       const FakeQuantizeInputs& inputs) {
  later_.insert(inputs.linears.begin(), inputs.linears.end());
  if (node <= next_) return;
  std::set<ValueId> kept;
  for (NodeId n = next_; n < node; ++n) {
    for (const ValueId id : graph_.node(n).results) {
      const bool is_read = id != kNoValue && (last_use_[static_cast<size_t>(id)] >= node ||
                                              std::ranges::count(wanted, id) > 0);
      if (is_read) kept.insert(id);
    }
  }
  Graph piece = piece_of(graph_, next_, node, kept);
  const FakeQuantizeInputs here = take_of(piece, inputs);
  if (!here.empty()) piece = fake_quantize_inputs(piece, here);
  SmallPlan plan(piece, backend_);
  for (const GraphInput& input : piece.inputs) {
    if (!is_model_tensor(input.kind)) continue;
    const std::vector<float> values = read_(input.name);
    plan.write(input.name, std::as_bytes(std::span(values)));
  }
  for (size_t batch = 0; batch < rows_.size(); ++batch) {
    for (const auto& [id, batches] : values_) plan.write(value_name(id), batches[batch]);
    plan.run();
    for (const ValueId id : kept) {
      auto& bytes = values_[id];
      bytes.resize(rows_.size());
      bytes[batch].resize(static_cast<size_t>(graph_.type(id).n_bytes()));
      plan.read(value_name(id), bytes[batch]);
      if (std::ranges::count(wanted, id) > 0) repeat_over_padding(id, rows_[batch], bytes[batch]);
    }
  }
  next_ = node;
  std::erase_if(values_, [&](const auto& entry) {
    return last_use_[static_cast<size_t>(entry.first)] < node &&
           std::ranges::count(wanted, entry.first) == 0;
  });
}

std::span<float> ModelWalk::value(ValueId id, size_t batch) {
  auto& bytes = values_.at(id)[batch];
  const auto all = static_cast<int64_t>(bytes.size() / sizeof(float));
  const int64_t n = all / rows_.front().batch * rows_[batch].batch;
  return {reinterpret_cast<float*>(bytes.data()), static_cast<size_t>(n)};
}

}  // namespace octet
