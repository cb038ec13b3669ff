#include "plan/plan.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "plan/joined_launches.h"
#include "plan/offsets.h"
#include "plan/schedule.h"
#include "plan/streams.h"
#include "plan/updates.h"
#include "plan/views.h"

namespace octet {

MemoryRole input_role(InputKind kind, StateUse use) {
  switch (kind) {
    case InputKind::parameter:
    case InputKind::constant:
    case InputKind::statistic:
      return MemoryRole::parameters;
    case InputKind::state:
    case InputKind::derived:
      return state_def(use).role;
    default:
      return MemoryRole::other;
  }
}

Arena input_arena(InputKind kind, StateUse use) {
  if (is_model_tensor(kind) || kind == InputKind::constant) return Arena::persistent;
  const bool lasts = kind == InputKind::state || kind == InputKind::derived;
  return lasts ? state_def(use).arena : Arena::step;
}

bool Layout::is_in_checkpoints(const Slot& slot) const {
  if (slot.kind == InputKind::constant) return saves_constants;
  if (slot.kind == InputKind::statistic) return true;
  return (slot.kind == InputKind::parameter || slot.kind == InputKind::state) &&
         state_def(slot.key.use).in_checkpoint;
}

ElementRange Layout::range_of(const Slot& slot) const {
  const int64_t n = slot.type.n_elems();
  return slot.whole ? shard_range(n_elems(*slot.whole), n, rank) : ElementRange{0, n};
}

const Layout::Slot* Layout::find(StateUse use, std::string_view owner) const {
  const auto it = slots.find(state_name(use, owner));
  return it == slots.end() || it->second.key.use != use ? nullptr : &it->second;
}

void Layout::add_inputs(const Graph& graph) {
  for (const GraphInput& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    const Arena arena = input_arena(input.kind, input.key.use);
    int64_t& used = arena_bytes[static_cast<int>(arena)];
    const auto [it, added] = slots.try_emplace(input.name, Slot{.type = type,
                                                                .kind = input.kind,
                                                                .key = input.key,
                                                                .arena = arena,
                                                                .offset = used,
                                                                .whole = input.whole});
    if (added) {
      used = add_bytes(used, align_up(type.n_bytes()), input.name);
    } else if (it->second.type != type) {
      throw Error(ErrorCode::internal, "[layout] '{}' is {} here and {} elsewhere", input.name,
                  to_string(type), to_string(it->second.type));
    }
  }
}

namespace {

class Planner {
 public:
  Planner(const Graph& graph, const Layout& layout, const Catalogue& catalogue,
          const PlanOptions& options)
      : layout_(layout), catalogue_(catalogue), options_(options) {
    plan_.target = catalogue.target().text();
    plan_.graph = gather_in_place(copy_shared_updates(graph, layout.rank), layout.rank);
    plan_.buffer_of.assign(plan_.graph.values.size(), -1);
    plan_.offset_of.assign(plan_.graph.values.size(), 0);
  }

  Plan run() {
    order_ = schedule(plan_.graph, options_.bucket_bytes);
    order_.erase(std::remove_if(order_.begin(), order_.end(),
                                [&](NodeId n) { return is_view(plan_.graph, node(n)); }),
                 order_.end());
    ends_ = ends_of_use(plan_.graph, order_);
    choose_kernels();
    find_last_uses();
    keep_launches_apart();
    find_gradients();
    place_inputs();
    for (int step = 0; step < static_cast<int>(order_.size()); ++step) plan_step(step);
    outputs_live_to_the_end();
    for (int arena = 0; arena < kArenaCount; ++arena)
      plan_.arena_bytes[arena] = layout_.arena_bytes[arena];
    assign_offsets();
    mark_chains();
    add_streams(plan_, ends_);
    verify_streams(plan_);
    return std::move(plan_);
  }

 private:
  const Node& node(NodeId id) const { return plan_.graph.node(id); }
  int& buffer_of(ValueId id) { return plan_.buffer_of[id]; }
  int64_t& offset_of(ValueId id) { return plan_.offset_of[id]; }
  int end_of(int step) const { return ends_[step]; }
  ValueId root(ValueId id) const { return view_root(plan_.graph, id); }

  // What steps of one launch touch lies apart until the last of them has ended.
  void keep_launches_apart() {
    const auto keep = [&](const StepRun& run) {
      for (int step = run.first; step <= run.last; ++step)
        ends_[step] = std::max(ends_[step], run.last);
    };
    chains_ = find_chains(plan_.graph, order_, kernels_, last_use_, catalogue_.target());
    for (const StepChain& chain : chains_) keep(chain);
    for (const StepRun& run : find_scratch_runs(plan_.graph, order_, kernels_)) keep(run);
  }
  void mark_chains() {
    for (const StepChain& chain : chains_) {
      for (int step = chain.first; step < chain.last; ++step) plan_.steps[step].chains_next = true;
      plan_.steps[chain.last].chain_kernel = chain.kernel;
    }
  }

  // By root value: the last step that reads it or any view of it.
  void find_last_uses() {
    last_use_.assign(plan_.graph.values.size(), -1);
    for (int step = 0; step < static_cast<int>(order_.size()); ++step) {
      for (const ValueId id : node(order_[step]).operands) {
        if (id != kNoValue) last_use_[root(id)] = step;
      }
    }
    for (const GraphOutput& output : plan_.graph.outputs) {
      last_use_[root(output.value)] = static_cast<int>(order_.size());
      const bool changes = output.updates != kNoValue && root(output.value) != output.updates;
      if (changes) aliased_input_.emplace(root(output.value), output.updates);
      const ValueId shard = new_shard(plan_.graph, output);
      if (shard == kNoValue) continue;
      aliased_input_.emplace(shard, output.updates);
      offset_of(shard) = layout_.rank * plan_.graph.type(shard).n_bytes();
    }
  }

  // Every slot of the layout is allocated, whether this function reads it or not.
  void place_inputs() {
    std::map<std::string_view, int> by_name;
    for (const auto& [name, slot] : layout_.slots) {
      by_name[name] = static_cast<int>(plan_.buffers.size());
      plan_.buffers.push_back({.name = name,
                               .role = input_role(slot.kind, slot.key.use),
                               .layer = -1,
                               .dtype = slot.type.dtype,
                               .arena = slot.arena,
                               .offset = slot.offset,
                               .bytes = slot.type.n_bytes(),
                               .first_step = -1,
                               .last_step = static_cast<int>(order_.size())});
    }
    for (const GraphInput& input : plan_.graph.inputs) {
      const auto slot = by_name.find(input.name);
      CHECK(slot != by_name.end());
      buffer_of(input.value) = slot->second;
    }
  }

  void plan_step(int step) {
    const NodeId id = order_[step];
    const Node& n = node(id);
    const KernelChoice& choice = kernels_[step];
    PlanStep plan_step{.node = id, .kernel = choice, .scratch = -1};
    for (size_t i = 0; i < n.results.size(); ++i) {
      if (n.results[i] != kNoValue) place_result(step, n, i);
    }
    add_bytes(0, choice.scratch_bytes, choice.name);
    if (choice.scratch_bytes > 0) {
      plan_step.scratch = static_cast<int>(plan_.buffers.size());
      plan_.buffers.push_back({.name = fmt::format("scratch of node {}", id),
                               .role = MemoryRole::workspace,
                               .layer = n.tag.layer,
                               .dtype = Dtype::u8,
                               .arena = Arena::transient,
                               .offset = 0,
                               .bytes = choice.scratch_bytes,
                               .first_step = step,
                               .last_step = end_of(step)});
    }
    for (const ValueId operand : n.operands) {
      if (operand == kNoValue) continue;
      Buffer& buffer = plan_.buffers[buffer_for(operand)];
      buffer.last_step = std::max(buffer.last_step, end_of(step));
    }
    plan_.steps.push_back(std::move(plan_step));
  }

  void choose_kernels() {
    for (const NodeId id : order_) {
      auto choice = choose(node(id));
      if (!choice) {
        throw Error(ErrorCode::invalid_argument, "[plan] no kernel for node {}: {}", id,
                    print(plan_.graph, node(id)));
      }
      kernels_.push_back(std::move(*choice));
    }
  }

  // A kernel's refusal is told with the place in the model.
  std::optional<KernelChoice> choose(const Node& n) const {
    try {
      return catalogue_.choose(plan_.graph, n);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
      const std::string layer = n.tag.layer < 0 ? "" : " of " + layer_text(n.tag);
      const std::string_view origin = n.tag.origin.empty() ? op_def(n.op).name : n.tag.origin;
      throw Error(error.code(), "[plan] {}{}: {}", origin, layer, error.what());
    }
  }

  int buffer_for(ValueId id) {
    int& buffer = buffer_of(id);
    if (buffer < 0) buffer = buffer_of(root(id));
    CHECK(buffer >= 0);
    return buffer;
  }

  void place_result(int step, const Node& n, size_t i) {
    const ValueId result = n.results[i];
    if (root(result) != result) {  // around this rank's shard of an input
      buffer_of(result) = buffer_of(root(result));
      return;
    }
    if (const auto aliased = aliased_input_.find(result); aliased != aliased_input_.end()) {
      // The next value of a parameter or state, or this rank's shard of it: written where the old
      // one lies, which no later step reads (plan/updates.h and schedule see to it).
      const ValueId input = aliased->second;
      CHECK(last_use_[input] <= step);
      buffer_of(result) = buffer_of(input);
      return;
    }
    const int reused = options_.reuse_in_place ? reusable(step, n, i) : -1;
    if (reused >= 0) {
      buffer_of(result) = reused;
      Buffer& buffer = plan_.buffers[reused];
      buffer.last_step = std::max(buffer.last_step, end_of(step));
      if (gradients_.count(result) > 0) buffer.role = MemoryRole::gradients;
      return;
    }
    buffer_of(result) = static_cast<int>(plan_.buffers.size());
    plan_.buffers.push_back({.name = fmt::format("%{}", result),
                             .role = role_of(n, result),
                             .layer = n.tag.layer,
                             .dtype = plan_.graph.type(result).dtype,
                             .arena = Arena::transient,
                             .offset = 0,
                             .bytes = plan_.graph.type(result).n_bytes(),
                             .first_step = step,
                             .last_step = end_of(step)});
  }

  // The buffer of a transient operand of as many bytes, all that lies in it, which dies here and
  // which the op may overwrite with this result.
  int reusable(int step, const Node& n, size_t result) {
    for (const InplacePair pair : op_def(n.op).inplace) {
      if (pair.result != result || n.in(pair.operand) == kNoValue) continue;
      const ValueId operand = root(n.in(pair.operand));
      const int buffer = buffer_of(operand);
      if (buffer < 0 || plan_.buffers[buffer].arena != Arena::transient) continue;
      if (last_use_[operand] != step || taken_at(step, buffer, n, result)) continue;
      const int64_t bytes = plan_.graph.type(n.results[result]).n_bytes();
      if (plan_.graph.type(n.in(pair.operand)).n_bytes() != bytes ||
          plan_.buffers[buffer].bytes != bytes)
        continue;
      // Another operand of this node may read the same buffer through a different value.
      const auto readers = std::count_if(n.operands.begin(), n.operands.end(), [&](ValueId id) {
        return id != kNoValue && buffer_for(id) == buffer;
      });
      if (readers == 1) return buffer;
    }
    return -1;
  }
  // True if an earlier result of this node took the buffer, or a value that outlives this step
  // shares it, or a collective reads it beside this step.
  bool taken_at(int step, int buffer, const Node& n, size_t result) {
    for (size_t i = 0; i < result; ++i) {
      if (n.results[i] != kNoValue && buffer_of(n.results[i]) == buffer) return true;
    }
    return plan_.buffers[buffer].last_step >= step;
  }

  MemoryRole role_of(const Node& n, ValueId result) const {
    if (n.tag.role == Role::update) return MemoryRole::optimizer;
    return gradients_.count(result) > 0 ? MemoryRole::gradients : MemoryRole::activations;
  }

  // Gradients of parameters: what updates read, and the gradients among the outputs.
  void find_gradients() {
    for (const Node& n : plan_.graph.nodes) {
      if (updated_parameter(plan_.graph, n) == nullptr) continue;
      const ValueId gradient = read_gradient(plan_.graph, n);
      if (gradient == kNoValue) continue;
      gradients_.insert(root(gradient));
      const Node* sum = gradient_maker(plan_.graph, gradient);
      if (sum != nullptr && is_collective(sum->op)) gradients_.insert(root(sum->in(Reduce::x)));
    }
    for (const GraphOutput& output : plan_.graph.outputs) {
      if (is_gradient_name(output.name)) gradients_.insert(root(output.value));
    }
  }

  void outputs_live_to_the_end() {
    for (const GraphOutput& output : plan_.graph.outputs) {
      Buffer& buffer = plan_.buffers[buffer_for(output.value)];
      buffer.last_step = static_cast<int>(order_.size());
      if (buffer.arena == Arena::transient) buffer.name = output.name;
    }
    for (const GraphOutput& output : plan_.graph.outputs) {
      CHECK(output.updates == kNoValue || buffer_for(output.value) == buffer_for(output.updates));
    }
    for (size_t v = 0; v < plan_.graph.values.size(); ++v) {
      const ValueId id = static_cast<ValueId>(v);
      if (root(id) == id) continue;
      buffer_of(id) = buffer_of(root(id));
      offset_of(id) = offset_of(root(id)) + view_offset(plan_.graph, id);
    }
  }

  void assign_offsets() {
    std::vector<int> transient;
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      if (plan_.buffers[b].arena == Arena::transient) transient.push_back(static_cast<int>(b));
    }
    plan_.arena_bytes[static_cast<int>(Arena::transient)] =
        octet::assign_offsets(plan_.buffers, transient);
  }

  const Layout& layout_;
  const Catalogue& catalogue_;
  const PlanOptions& options_;
  Plan plan_;
  ById<NodeId> order_;
  ById<int> ends_;              // by step: the last one that its operands and results are in use at
  ById<KernelChoice> kernels_;  // by step
  std::vector<StepChain> chains_;
  ById<int> last_use_;
  std::map<ValueId, ValueId> aliased_input_;  // result -> the input that it updates
  std::set<ValueId> gradients_;
};

}  // namespace

Place place_of(const Plan& plan, ValueId id) {
  const auto at = static_cast<size_t>(id);
  const Buffer& buffer = plan.buffers[plan.buffer_of[at]];
  return {buffer.arena, buffer.offset + plan.offset_of[at], plan.graph.type(id).n_bytes()};
}

std::vector<Place> places_of(const Plan& plan, std::span<const ValueId> ids) {
  std::vector<Place> places;
  for (const ValueId id : ids) {
    if (id != kNoValue) places.push_back(place_of(plan, id));
  }
  return places;
}

bool any_overlap(std::span<const Place> a, std::span<const Place> b) {
  return std::ranges::any_of(a, [&](const Place& x) {
    return std::ranges::any_of(b, [&](const Place& y) { return x.overlaps(y); });
  });
}

Plan make_plan(const Graph& graph, const Layout& layout, const Catalogue& catalogue,
               const PlanOptions& options) {
  return Planner(graph, layout, catalogue, options).run();
}

}  // namespace octet
