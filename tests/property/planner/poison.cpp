#include "property/planner/poison.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/backend.h"
#include "plan/report.h"
#include "plan/views.h"
#include "property/planner/plan_checker.h"
#include "runtime/executor.h"

namespace octet::plan_checker {
namespace {

constexpr int kPoison = 0xFB;  // a NaN of f32 and bf16, -448 or so in eight bits

class PoisonedRun {
 public:
  PoisonedRun(const Plan& plan, cpu::Backend& backend)
      : plan_(plan),
        arenas_(*backend.device, plan.arena_bytes),
        bound_(plan, *backend.catalogue, arenas_),
        last_read_(last_reads(plan, parse_program(program_text(plan, Offsets::yes)))) {
    for (int arena = 0; arena < kArenaCount; ++arena)
      if (plan.arena_bytes[arena] > 0)
        std::memset(arenas_.arena(static_cast<Arena>(arena)), kPoison,
                    static_cast<size_t>(plan.arena_bytes[arena]));
  }

  reference::Tensors run(const reference::Tensors& inputs) {
    for (const GraphInput& input : plan_.graph.inputs) {
      const TensorType& type = plan_.graph.type(input.value);
      std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
      reference::store(type.dtype, inputs.at(input.name), bytes.data());
      bound_.write_input(input.name, bytes.data(), type.n_bytes());
    }
    int step = 0;
    bound_.run([&](const Plan&, const PlanStep&, bool before) {
      if (!before) spoil_dead(step++);
    });
    reference::Tensors outputs;
    for (const GraphOutput& output : plan_.graph.outputs) {
      const TensorType& type = plan_.graph.type(output.value);
      std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
      bound_.read_output(output.name, bytes.data(), type.n_bytes());
      outputs[output.name].resize(static_cast<size_t>(type.n_stored()));
      reference::load(type.dtype, bytes.data(), outputs[output.name]);
    }
    return outputs;
  }

 private:
  // Bytes of the values that this step read or wrote and none after it reads, unless a value that
  // lives on has taken them over.
  void spoil_dead(int step) {
    const Node& node = plan_.graph.node(plan_.steps[static_cast<size_t>(step)].node);
    std::vector<int> kept;
    for (const ValueId id : node.results) {
      if (id != kNoValue && last_read_[static_cast<size_t>(id)] > step) kept.push_back(buffer(id));
    }
    const auto spoil = [&](ValueId id) {
      if (id == kNoValue || last_read_[static_cast<size_t>(root(id))] > step) return;
      const Buffer& b = plan_.buffers[static_cast<size_t>(buffer(id))];
      if (b.arena != Arena::transient || std::count(kept.begin(), kept.end(), buffer(id)) > 0)
        return;
      if (b.bytes > 0)
        std::memset(arenas_.arena(b.arena) + b.offset, kPoison, static_cast<size_t>(b.bytes));
    };
    for (const ValueId id : node.operands) spoil(id);
    for (const ValueId id : node.results) spoil(id);
  }
  int buffer(ValueId id) const { return plan_.buffer_of[static_cast<size_t>(id)]; }
  ValueId root(ValueId id) const { return view_root(plan_.graph, id); }

  const Plan& plan_;
  Arenas arenas_;
  BoundPlan bound_;
  std::vector<int> last_read_;
};

}  // namespace

reference::Tensors run_poisoned(const Plan& plan, const reference::Tensors& inputs) {
  static cpu::Backend backend = cpu::make_backend(1, cpu::Isa::scalar);
  return PoisonedRun(plan, backend).run(inputs);
}

}  // namespace octet::plan_checker
