#include "runtime/executor.h"

#include <algorithm>

#include "base/error.h"
#include "plan/joined_launches.h"
#include "plan/views.h"
#include "runtime/copy_ring.h"

namespace octet {

Arenas::Arenas(Device& device, const int64_t (&arena_bytes)[kArenaCount]) : device_(device) {
  for (int arena = 0; arena < kArenaCount; ++arena)
    memory_[arena] = device.allocate(arena_bytes[arena]);
}

bool Arenas::hold(const int64_t (&arena_bytes)[kArenaCount]) const {
  for (int arena = 0; arena < kArenaCount; ++arena)
    if (arena_bytes[arena] > bytes(static_cast<Arena>(arena))) return false;
  return true;
}

RankExchange exchange_of(Group& group) {
  RankExchange exchange{.rank = group.rank(), .n_ranks = group.size()};
  exchange.all_gather = [&group](const void* own, void* all, int64_t bytes) {
    group.all_gather(static_cast<const std::byte*>(own), static_cast<std::byte*>(all), bytes);
  };
  exchange.look = [&group](int64_t progress) { group.look(progress); };
  return exchange;
}

void Arenas::connect(Group& group) {
  std::vector<DeviceMemory*> shared;
  for (const auto& memory : memory_) shared.push_back(memory.get());
  device_.connect(exchange_of(group), shared);
}

std::byte* Arenas::address(const Plan& plan, ValueId id) {
  const Place place = place_of(plan, id);
  return arena(place.arena) + place.offset;
}

std::vector<std::byte> Arenas::read(const Plan& plan, ValueId id) {
  const int64_t n_bytes = plan.graph.type(id).n_bytes();
  std::vector<std::byte> bytes(static_cast<size_t>(n_bytes));
  if (n_bytes > 0) device_.copy_out(bytes.data(), address(plan, id), n_bytes);
  return bytes;
}

namespace {

class WorkspaceLoan {
 public:
  WorkspaceLoan(Device& device, DeviceMemory& memory) : device_(device) {
    device_.set_workspace(&memory);
  }
  ~WorkspaceLoan() { device_.set_workspace(nullptr); }
  WorkspaceLoan(const WorkspaceLoan&) = delete;
  WorkspaceLoan& operator=(const WorkspaceLoan&) = delete;

 private:
  Device& device_;
};

}  // namespace

BoundPlan::BoundPlan(const Plan& plan, Catalogue& catalogue, Arenas& arenas)
    : plan_(plan), arenas_(arenas) {
  if (const std::string target = catalogue.target().text(); plan.target != target)
    throw Error(ErrorCode::internal, "[plan] expected a plan for {}, got one for {}", target,
                plan.target);
  CHECK(arenas.hold(plan.arena_bytes));
  // Between runs the transient arena holds nothing: products may be timed on it.
  const WorkspaceLoan workspace(arenas.device(), arenas.memory(Arena::transient));
  uint32_t n_transfers = 0;
  for (const PlanStep& step : plan.steps) {
    const Node& node = plan.graph.node(step.node);
    Bound bound{.launch = catalogue.prepare(plan.graph, node, step.kernel),
                .operands = {},
                .results = {},
                .scratch = nullptr};
    for (const ValueId id : node.operands)
      bound.operands.push_back(id == kNoValue ? nullptr : address(id));
    for (const ValueId id : node.results)
      bound.results.push_back(id == kNoValue ? nullptr : address(id));
    if (step.scratch >= 0) {
      const Buffer& scratch = plan.buffers[step.scratch];
      bound.scratch = arenas.arena(scratch.arena) + scratch.offset;
    }
    if (step.begins_collective_group) bound.begins_collective_group = ++n_transfers;
    if (step.ends_collective_group) last_transfer_ = static_cast<int>(steps_.size());
    steps_.push_back(std::move(bound));
  }
  joins_next_ = find_joined(plan);
  first_overwrite_ = find_first_overwrite([&](const GraphInput& input) {
    const bool lasts = is_model_tensor(input.kind) || input.kind == InputKind::state;
    return lasts && plan_.graph.type(input.value).n_bytes() > CopyRing::kSmall;
  });
  first_update_ = find_first_overwrite([](const GraphInput& input) {
    return input.kind == InputKind::parameter ||
           (input.kind == InputKind::state &&
            state_def(input.key.use).owner == StateOwner::parameter);
  });
}

size_t BoundPlan::find_first_overwrite(
    const std::function<bool(const GraphInput&)>& is_kept_input) const {
  struct Range {
    const std::byte *first, *end;
  };
  std::vector<Range> kept;
  for (const GraphInput& input : plan_.graph.inputs) {
    const int64_t n_bytes = plan_.graph.type(input.value).n_bytes();
    const int index = plan_.buffer_of[input.value];
    const bool lasts = plan_.buffers[index].arena == Arena::persistent;
    if (!lasts || !is_kept_input(input)) continue;
    const std::byte* first = address(input.value);
    kept.push_back({first, first + n_bytes});
  }
  const auto is_kept = [&](const std::byte* at) {
    return std::ranges::any_of(kept, [&](const Range& r) { return r.first <= at && at < r.end; });
  };
  // A gather around this rank's shard leaves the shard, which is all that the rank keeps.
  const auto overwrites = [&](size_t i) {
    return std::ranges::any_of(steps_[i].results, is_kept) &&
           !completes_input(plan_.graph, plan_.graph.node(plan_.steps[i].node));
  };
  size_t first = 0;
  while (first < steps_.size() && !overwrites(first)) ++first;
  if (first == steps_.size()) return first;
  // Between ranks: from where a run begins, the others may write here.
  while (plan_.steps[first].stream == Stream::transfer &&
         !plan_.steps[first].begins_collective_group)
    --first;
  return first;
}

std::byte* BoundPlan::address(ValueId id) const {
  return arenas_.address(plan_, id);
}

void BoundPlan::run() {
  // Libraries may still set themselves up in the first run, which a captured graph must not hold.
  if (++n_runs_ == 2) graph_ = arenas_.device().capture([this] { launch_all(); });
  if (graph_ != nullptr) {
    graph_->replay();
  } else {
    launch_all();
  }
}

void BoundPlan::launch(size_t index, bool joins_next) const {
  const Bound& bound = steps_[index];
  const PlanStep& step = plan_.steps[index];
  bound.launch({.operands = bound.operands,
                .results = bound.results,
                .scratch = bound.scratch,
                .stream = step.stream,
                .begins_collective_group = bound.begins_collective_group,
                .ends_collective_group = step.ends_collective_group,
                .is_second_phase = step.is_second_phase,
                .joins_next = joins_next});
}

// Event 2 i: step i, the first of its run, may begin; 2 i + 1: step i, the last, has ended.
void BoundPlan::wait_before(size_t index) const {
  const PlanStep& step = plan_.steps[index];
  Device& device = arenas_.device();
  if (step.joins >= 0) device.wait(2 * step.joins + 1, Stream::compute);
  if (!step.begins_collective_group) return;
  device.signal(2 * static_cast<int>(index), Stream::compute);
  device.wait(2 * static_cast<int>(index), Stream::transfer);
}
void BoundPlan::signal_behind(size_t index) const {
  Device& device = arenas_.device();
  if (plan_.steps[index].ends_collective_group)
    device.signal(2 * static_cast<int>(index) + 1, Stream::transfer);
  if (index + 1 == steps_.size() && last_transfer_ >= 0)
    device.wait(2 * last_transfer_ + 1, Stream::compute);
}

void BoundPlan::launch_all() const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    wait_before(i);
    launch(i, joins_next_[i]);
    signal_behind(i);
  }
}

void BoundPlan::run(const StepObserver& observer) {
  run(observer, {});
}

void BoundPlan::run(const StepObserver& observer, const std::function<void()>& before_overwrite,
                    const std::function<void()>& before_update) {
  run_observed(steps_.size(), observer, [&](size_t i) {
    if (i == first_update_ && before_update) before_update();
    if (i == first_overwrite_ && before_overwrite) before_overwrite();
  });
}

void BoundPlan::run_to_update(const StepObserver& observer) {
  run_observed(first_update_, observer, [](size_t) {});
}

bool BoundPlan::is_before_update(std::string_view output) const {
  const ValueId value = view_root(plan_.graph, plan_.graph.find_output(output)->value);
  for (size_t i = 0; i < first_update_; ++i) {
    const Node& node = plan_.graph.node(plan_.steps[i].node);
    if (std::ranges::count(node.results, value) > 0) return true;
  }
  return false;
}

void BoundPlan::run_observed(size_t end, const StepObserver& observer,
                             const std::function<void(size_t)>& before_step) {
  for (size_t i = 0; i < end; ++i) {
    before_step(i);
    wait_before(i);
    if (observer) observer(plan_, plan_.steps[i], true);
    launch(i);
    if (observer) observer(plan_, plan_.steps[i], false);
    signal_behind(i);
  }
}

std::byte* BoundPlan::input(std::string_view name) const {
  const GraphInput* input = plan_.graph.find_input(name);
  if (input == nullptr)
    throw Error(ErrorCode::internal, "[executor] function {} has no input '{}'", plan_.graph.name,
                name);
  return address(input->value);
}

std::byte* BoundPlan::output(std::string_view name) const {
  const GraphOutput* output = plan_.graph.find_output(name);
  if (output == nullptr)
    throw Error(ErrorCode::internal, "[executor] function {} has no output '{}'", plan_.graph.name,
                name);
  return address(output->value);
}

void BoundPlan::write_input(std::string_view name, const void* data, int64_t bytes) {
  CHECK(bytes == plan_.graph.type(plan_.graph.find_input(name)->value).n_bytes());
  arenas_.device().copy_in(input(name), data, bytes);
}

void BoundPlan::write_inputs(const std::vector<HostInput>& inputs) {
  std::vector<HostBytes> parts;
  for (const auto& [name, data, bytes] : inputs) {
    parts.push_back({input(name), data, bytes});
    CHECK(bytes == plan_.graph.type(plan_.graph.find_input(name)->value).n_bytes());
  }
  arenas_.device().copy_in_all(parts);
}

void BoundPlan::read_output(std::string_view name, void* data, int64_t bytes) const {
  const std::byte* from = output(name);
  CHECK(bytes == plan_.graph.type(plan_.graph.find_output(name)->value).n_bytes());
  arenas_.device().copy_out(data, from, bytes);
}

float BoundPlan::read_scalar(std::string_view name) const {
  float value = 0;
  read_output(name, &value, sizeof(value));
  return value;
}

}  // namespace octet
