#include "library/block.h"

#include "base/error.h"

namespace octet {
namespace {

Plan planned(const Graph& graph, const Catalogue& catalogue) {
  Layout layout;
  layout.add_inputs(graph);
  return make_plan(graph, layout, catalogue);
}

}  // namespace

std::byte* BlockMachine::workspace(int64_t bytes) {
  if (workspace_ == nullptr || workspace_->bytes() < bytes) {
    workspace_.reset();
    workspace_ = backend_.device->allocate(bytes);
  }
  return workspace_->data();
}

BoundBlock::BoundBlock(const Graph& graph, BlockMachine& machine)
    : plan_(planned(graph, machine.catalogue())) {
  for (const PlanStep& step : plan_.steps) {
    const Node& node = plan_.graph.node(step.node);
    steps_.push_back({.launch = machine.catalogue().prepare(plan_.graph, node),
                      .operands = places(node.operands),
                      .results = places(node.results),
                      .scratch = {step.scratch, 0}});
  }
  find_external();
  buffers_.resize(plan_.buffers.size());
}

BoundBlock::Place BoundBlock::place(ValueId id) const {
  if (id == kNoValue) return {};
  return {plan_.buffer_of[id], plan_.offset_of[id]};
}

std::vector<BoundBlock::Place> BoundBlock::places(const ValueIds& ids) const {
  std::vector<Place> all;
  for (const ValueId id : ids) all.push_back(place(id));
  return all;
}

// Buffers that are the caller's: each once.
void BoundBlock::find_external() {
  std::vector<bool> is_taken(plan_.buffers.size(), false);
  for (const GraphInput& input : plan_.graph.inputs) {
    const int buffer = place(input.value).buffer;
    input_buffers_.push_back(buffer);
    is_taken[static_cast<size_t>(buffer)] = true;
  }
  for (const GraphOutput& output : plan_.graph.outputs) {
    const Place at = place(output.value);
    const int64_t bytes = plan_.graph.type(output.value).n_bytes();
    auto taken = is_taken[static_cast<size_t>(at.buffer)];
    const bool is_own = !taken && at.offset == 0 && plan_.buffers[at.buffer].bytes == bytes;
    if (!is_own) copies_.push_back({at, output_buffers_.size(), bytes});
    output_buffers_.push_back(is_own ? at.buffer : -1);
    if (is_own) taken = true;
  }
  for (size_t i = 0; i < plan_.buffers.size(); ++i)
    CHECK(is_taken[i] || plan_.buffers[static_cast<int>(i)].arena == Arena::transient);
}

std::byte* BoundBlock::address(const Place& place) const {
  return place.buffer < 0 ? nullptr : buffers_[static_cast<size_t>(place.buffer)] + place.offset;
}

void BoundBlock::run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs,
                     BlockMachine& machine) {
  CHECK(inputs.size() == input_buffers_.size() && outputs.size() == output_buffers_.size());
  std::byte* workspace = machine.workspace(workspace_bytes());
  for (size_t i = 0; i < buffers_.size(); ++i)
    buffers_[i] = workspace + plan_.buffers[static_cast<int>(i)].offset;
  for (size_t i = 0; i < inputs.size(); ++i)
    buffers_[static_cast<size_t>(input_buffers_[i])] = inputs[i];
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (output_buffers_[i] >= 0) buffers_[static_cast<size_t>(output_buffers_[i])] = outputs[i];
  }
  for (const Step& step : steps_) {
    operands_.clear(), results_.clear();
    for (const Place& at : step.operands) operands_.push_back(address(at));
    for (const Place& at : step.results) results_.push_back(address(at));
    step.launch({.operands = operands_, .results = results_, .scratch = address(step.scratch)});
  }
  for (const Copy& copy : copies_)
    machine.device().copy_within(outputs[copy.output], address(copy.from), copy.bytes);
}

Block::Block(const BlockSource& source, std::shared_ptr<BlockMachine> machine)
    : machine_(std::move(machine)) {
  const CallLock::Held held = machine_->enter();
  const BlockGraphs graphs = block_graphs(source, machine_->catalogue());
  forward_ = std::make_unique<BoundBlock>(graphs.forward, *machine_);
  if (!source.wanted.empty()) backward_ = std::make_unique<BoundBlock>(graphs.backward, *machine_);
}

void Block::run_forward(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs) {
  const CallLock::Held held = machine_->enter();
  forward_->run(inputs, outputs, *machine_);
}

void Block::run_backward(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs) {
  const CallLock::Held held = machine_->enter();
  backward_->run(inputs, outputs, *machine_);
}

}  // namespace octet
