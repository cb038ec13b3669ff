#include "library/block.h"

#include <algorithm>

#include "base/error.h"
#include "ir/states.h"
#include "plan/row_unavailable.h"

namespace octet {
namespace {

class BorrowedStream {
 public:
  BorrowedStream(Device& device, void* stream) : device_(device) { device_.borrow_stream(stream); }
  ~BorrowedStream() { device_.return_stream(); }
  BorrowedStream(const BorrowedStream&) = delete;
  BorrowedStream& operator=(const BorrowedStream&) = delete;

 private:
  Device& device_;
};

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

BoundBlock::BoundBlock(const Graph& graph, std::string_view flag,
                       const std::vector<std::string>& spoiled, BlockMachine& machine)
    : plan_(planned(graph, machine.catalogue())) {
  for (const PlanStep& step : plan_.steps) {
    const Node& node = plan_.graph.node(step.node);
    steps_.push_back({.launch = machine.catalogue().prepare(plan_.graph, node, step.kernel),
                      .operands = places(node.operands),
                      .results = places(node.results),
                      .scratch = {step.scratch, 0}});
  }
  find_external();
  find_spoiled(flag, spoiled);
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

void BoundBlock::find_spoiled(std::string_view flag, const std::vector<std::string>& spoiled) {
  for (size_t i = 0; i < plan_.graph.outputs.size(); ++i) {
    const std::string& name = plan_.graph.outputs[i].name;
    if (name == flag) flag_ = static_cast<int>(i);
    if (std::ranges::count(spoiled, name) > 0) spoiled_.push_back(static_cast<int>(i));
  }
  CHECK(spoiled_.size() <= Device::kMaxNanRanges);
}

std::byte* BoundBlock::address(const Place& place) const {
  return place.buffer < 0 ? nullptr : buffers_[static_cast<size_t>(place.buffer)] + place.offset;
}

void BoundBlock::bind(const BlockCall& call, std::byte* workspace) {
  CHECK(call.inputs.size() == input_buffers_.size() &&
        call.outputs.size() == output_buffers_.size());
  for (size_t i = 0; i < buffers_.size(); ++i)
    buffers_[i] = workspace + plan_.buffers[static_cast<int>(i)].offset;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    buffers_[static_cast<size_t>(input_buffers_[i])] = call.inputs[i];
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (output_buffers_[i] >= 0)
      buffers_[static_cast<size_t>(output_buffers_[i])] = call.outputs[i];
  }
}

void BoundBlock::run(const BlockCall& call, BlockMachine& machine) {
  bind(call, call.workspace != nullptr ? call.workspace : machine.workspace(workspace_bytes()));
  const BorrowedStream stream(machine.device(), call.stream);
  for (const Step& step : steps_) {
    operands_.clear(), results_.clear();
    for (const Place& at : step.operands) operands_.push_back(address(at));
    for (const Place& at : step.results) results_.push_back(address(at));
    step.launch({.operands = operands_, .results = results_, .scratch = address(step.scratch)});
  }
  for (const Copy& copy : copies_)
    machine.device().copy_within(call.outputs[copy.output], address(copy.from), copy.bytes);
  if (flag_ < 0 || spoiled_.empty()) return;
  std::vector<DeviceRange> ranges;
  for (const int i : spoiled_) {
    const int64_t bytes =
        plan_.graph.type(plan_.graph.outputs[static_cast<size_t>(i)].value).n_bytes();
    ranges.push_back({call.outputs[static_cast<size_t>(i)], bytes});
  }
  machine.device().fill_nan_where(call.outputs[static_cast<size_t>(flag_)], ranges);
}

Block::Block(const BlockSource& source, std::shared_ptr<BlockMachine> machine, void* stream)
    : machine_(std::move(machine)) {
  const CallLock::Held held = machine_->enter();
  const BorrowedStream borrowed(machine_->device(), stream);
  bind_available_rows(machine_->catalogue(), [&] { make(source); });
}

void Block::make(const BlockSource& source) {
  const BlockGraphs graphs = block_graphs(source, machine_->catalogue());
  forward_ =
      std::make_unique<BoundBlock>(graphs.forward, kForwardFlag, source.quantized, *machine_);
  if (source.wanted.empty()) return;
  std::vector<std::string> gradients;
  for (const std::string& name : source.wanted) gradients.push_back(gradient_name(name));
  backward_ = std::make_unique<BoundBlock>(graphs.backward, kBackwardFlag, gradients, *machine_);
}

int64_t Block::workspace_bytes() const {
  if (!machine_->is_asynchronous()) return 0;
  return std::max(forward_->workspace_bytes(), has_backward() ? backward_->workspace_bytes() : 0);
}

void Block::run_forward(const BlockCall& call) {
  const CallLock::Held held = machine_->enter();
  forward_->run(call, *machine_);
}

void Block::run_backward(const BlockCall& call) {
  const CallLock::Held held = machine_->enter();
  backward_->run(call, *machine_);
}

}  // namespace octet
