#include "infer/inference.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "compile/budget.h"
#include "compile/compose.h"
#include "infer/loaded_rms.h"
#include "infer/model_spec.h"
#include "infer/read_rows.h"
#include "infer/stored_weights.h"
#include "ir/caches.h"
#include "plan/row_unavailable.h"

namespace octet {
namespace {

// The scales of a quantized model are of values as they are: no recipe of eight bits has them in
// its place, and where values carry scales they are of other data.
void expect_plain_recipe(const std::string& recipe) {
  constexpr std::array<std::string_view, 3> kPlain = {"fp32", "bf16", "fp16"};
  if (std::ranges::find(kPlain, recipe) != kPlain.end()) return;
  throw Error(ErrorCode::invalid_argument,
              "[recipe] expected {} for a model whose activations are quantized, got '{}'",
              fmt::join(kPlain, ", "), recipe);
}

// None of a model that has no loss of its own.
std::vector<WeightedLoss> own_losses(const ModelSpec& spec, const LossOptions& options) {
  if (model_def(spec.kind).loss(spec).empty()) return {};
  std::vector<WeightedLoss> losses = resolved_losses(spec, {});
  for (WeightedLoss& one : losses) one.options = options;
  return losses;
}

void expect_room(const DeviceInfo& info, const int64_t (&arena_bytes)[kArenaCount],
                 const Plan& plan) {
  const int64_t bytes = std::accumulate(std::begin(arena_bytes), std::end(arena_bytes), int64_t{0});
  if (bytes <= info.memory_bytes) return;
  throw Error(ErrorCode::device,
              "[memory] expected at most {} (available on {}), got a plan of {}\n  most of it: "
              "{}\n  a smaller batch or shorter sequences take less",
              bytes_text(static_cast<double>(info.memory_bytes)), info.name,
              bytes_text(static_cast<double>(bytes)), largest_roles_text(plan));
}

// A model's outputs, and its loss, are its own; all else is of text, or of one about a source.
ModelSpec expect_served(const ModelSpec& spec, std::span<const FunctionKey> functions) {
  const bool has_loss = !model_def(spec.kind).loss(spec).empty();
  const bool are_of_text = std::ranges::any_of(functions, [&](const FunctionKey& key) {
    return key.name != function::logits && !(has_loss && key.name == function::evaluate);
  });
  if (are_of_text && !model_def(spec.kind).translates) expect_text(spec);
  return spec;
}

}  // namespace

void expect_text(const ModelSpec& spec) {
  const ModelDef& def = model_def(spec.kind);
  if (def.writes_text || def.sees_pictures) return;
  throw Error(
      ErrorCode::invalid_argument, "[model] expected a model that writes text, got {}{}", def.name,
      def.translates ? ", which translates (octet generate --sources, Model.translate)" : "");
}

namespace {

// Inputs that a function quantizes which runs a part of the model alone (a decoder without what
// reads pictures or a source): without those of `parameters` that it does not read.
FakeQuantizeInputs inputs_within(const Graph& graph, FakeQuantizeInputs all,
                                 const std::set<std::string>& parameters) {
  const auto stack_of = [](const std::string& layer) { return layer.substr(0, layer.rfind('.')); };
  std::set<std::string> weights, stacks;
  const auto all_uses = uses(graph);
  for (const GraphInput& input : graph.inputs) {
    if (!all_uses[input.value].empty()) weights.insert(input.name);
  }
  for (const Node& node : graph.nodes) stacks.insert(stack_of(layer_name(node.tag)));
  std::erase_if(all.linears, [&](const auto& entry) {
    return parameters.contains(entry.first) && !weights.contains(entry.first);
  });
  std::erase_if(all.residuals, [&](const auto& entry) {
    return !stacks.contains(stack_of(entry.first.substr(0, entry.first.find(".residual."))));
  });
  return all;
}

std::set<std::string> names_of_parameters(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const ParameterSpec& parameter : model_parameters(spec)) names.insert(parameter.name);
  return names;
}

}  // namespace

ProgramOptions inference_options(const ModelSpec& spec, const Precision& precision,
                                 const BatchSize& size) {
  ProgramOptions options;
  options.forward = forward_builder(spec, own_losses(spec, precision.loss));
  options.recipe = precision.recipe;
  if (!precision.inputs.empty()) {
    expect_plain_recipe(precision.recipe);
    options.forward_passes.push_back(
        {.name = "fake_quantize_inputs",
         .run = [inputs = precision.inputs,
                 parameters = names_of_parameters(spec)](const Graph& graph) {
           return fake_quantize_inputs(graph, inputs_within(graph, inputs, parameters));
         }});
  }
  options.freezes_parameters = precision.stored != FrozenFormat::as_computed;
  options.recipe_options = precision.recipe_options;
  options.recipe_options.frozen = precision.stored;
  options.train = size;
  options.inference_only = true;
  return options;
}

namespace {

// The weights mean nothing without the factors of a recipe that made another model of it.
void expect_own_factors(const ModelSource& source) {
  const bool is_scaled = source.run && find_recipe(source.run->recipe.base).unit_scales;
  if (find_recipe(source.recipe).unit_scales == is_scaled) return;
  if (is_scaled) {
    throw Error(ErrorCode::invalid_argument,
                "[recipe] '{}': expected recipe {}, which the run was trained with and without "
                "whose factors its weights are another model, got {}",
                source.folder, source.run->recipe.base, source.recipe);
  }
  throw Error(ErrorCode::invalid_argument,
              "[recipe] '{}': expected another recipe than {}, which is of runs that it trained",
              source.folder, source.recipe);
}

}  // namespace

Precision precision_of(const ModelSource& source, const WeightReader& weights) {
  expect_own_factors(source);
  Precision precision(source.recipe, weights.inputs(), source.stored);
  precision.recipe_options = source.recipe_options;
  if (find_recipe(source.recipe).unit_scales) precision.recipe_options.trained_seq = source.seq;
  if (source.run)
    precision.loss = {.temperature = source.run->train.contrastive_temperature,
                      .beta = source.run->train.pairwise_beta};
  precision.loss.negatives = source.negatives;
  if (predicts_scales(source.recipe) && precision.recipe_options.initial_rms.empty())
    precision.recipe_options.initial_rms = loaded_rms(weights, source.spec);
  return precision;
}

Inference::Inference(const ModelSpec& spec, const Precision& precision,
                     std::span<const FunctionKey> functions, Device& device, Catalogue& catalogue)
    : spec_(expect_served(resolved(spec), functions)),
      inputs_(precision.inputs),
      stored_(precision.stored),
      program_(inference_options(spec, precision, functions.front().size), catalogue,
               {functions.begin(), functions.end()}) {
  bind_available_rows(catalogue, [&] {
    bound_.clear();
    for (const FunctionKey& f : functions) program_.plan(f.name, f.size);
    int64_t arena_bytes[kArenaCount];
    program_.arena_bytes(arena_bytes);
    expect_room(device.info(), arena_bytes, program_.plan(functions[0].name, functions[0].size));
    arenas_.reset();
    arenas_ = std::make_unique<Arenas>(device, arena_bytes);
    for (const FunctionKey& f : functions)
      bound_[f] = std::make_unique<BoundPlan>(program_.plan(f.name, f.size), catalogue, *arenas_);
  });
  for (const auto& [name, slot] : program_.layout().slots) {
    if (slot.key.use != StateUse::kv_cache || !is_recurrent_cache(slot.key.owner)) continue;
    device.fill_zero(arenas_->arena(slot.arena) + slot.offset, slot.type.n_bytes());
  }
}

void Inference::load(const WeightReader& weights) {
  CHECK(weights.inputs() == inputs_);
  load_weights(*arenas_, program_.layout(), model_parameters(spec_), weights, stored_);
}

BoundPlan& Inference::function(std::string_view name, const BatchSize& size) {
  const auto it = bound_.find({name, size});
  CHECK(it != bound_.end());
  return *it->second;
}

std::vector<float> Inference::read_rows(const BoundPlan& plan, std::string_view output,
                                        int64_t first, int64_t n) {
  return octet::read_rows(arenas_->device(), plan, output, {first, n});
}

void Inference::read(const BoundPlan& plan, std::string_view output, std::span<std::byte> to) {
  const Graph& graph = plan.plan().graph;
  CHECK(graph.type(graph.find_output(output)->value).n_bytes() == std::ssize(to));
  arenas_->device().copy_out(to.data(), plan.output(output), std::ssize(to));
}

namespace {

// Bytes of an entry's first rows; of all where a cache has no rows of positions.
int64_t bytes_of_rows(const Layout::Slot& slot, const BatchSize& size, int64_t n_rows) {
  const std::string& owner = slot.key.owner;
  const int64_t entry_bytes = slot.type.n_bytes() / size.batch;
  const bool is_whole = is_source_cache(owner) || is_recurrent_cache(owner);
  return is_whole ? entry_bytes : entry_bytes / size.cache * n_rows;
}

}  // namespace

void Inference::copy_cache(const BatchSize& size, int64_t n_rows) {
  CHECK(n_rows >= 0 && n_rows <= size.cache);
  const auto batch = fmt::format(".{}x", size.batch), own = fmt::format("{}{}", batch, size.cache);
  for (const auto& [name, slot] : program_.layout().slots) {
    if (slot.key.use != StateUse::kv_cache) continue;
    const std::string& owner = slot.key.owner;
    const bool is_source = is_source_cache(owner) && owner.find(batch) != std::string::npos;
    if (!is_source && !owner.ends_with(own)) continue;
    const int64_t entry_bytes = slot.type.n_bytes() / size.batch;
    const int64_t n_bytes = bytes_of_rows(slot, size, n_rows);
    std::byte* const first = arenas_->arena(slot.arena) + slot.offset;
    for (int64_t entry = 1; entry < size.batch; ++entry)
      arenas_->device().copy_within(first + entry * entry_bytes, first, n_bytes);
  }
}

void Inference::copy_rows(const CacheEntry& from, const CacheEntry& to, int64_t first, int64_t n) {
  CHECK(from.size.cache == to.size.cache && first >= 0 && n >= 0 && first + n <= to.size.cache);
  const auto ending = [](const CacheEntry& of) {
    return fmt::format(".{}x{}", of.size.batch, of.size.cache);
  };
  const std::string from_ending = ending(from), to_ending = ending(to);
  const auto& slots = program_.layout().slots;
  for (const auto& [name, slot] : slots) {
    const std::string& owner = slot.key.owner;
    if (slot.key.use != StateUse::kv_cache || !owner.ends_with(from_ending)) continue;
    if (is_source_cache(owner)) continue;
    const std::string stem = owner.substr(0, owner.size() - from_ending.size());
    const Layout::Slot& other = slots.at(state_name(StateUse::kv_cache, stem + to_ending));
    const int64_t entry_bytes = slot.type.n_bytes() / from.size.batch;
    const int64_t before = is_recurrent_cache(owner) ? 0 : bytes_of_rows(slot, from.size, first);
    const auto at = [&](const Layout::Slot& of, const CacheEntry& entry) {
      return arenas_->arena(of.arena) + of.offset + entry.entry * entry_bytes + before;
    };
    arenas_->device().copy_within(at(other, to), at(slot, from), bytes_of_rows(slot, from.size, n));
  }
}

void Inference::reorder_cache(const BatchSize& size, std::span<const int64_t> from,
                              int64_t n_rows) {
  CHECK(std::ssize(from) == size.batch && n_rows >= 0 && n_rows <= size.cache);
  std::vector<int64_t> moved;  // entries
  for (int64_t entry = 0; entry < size.batch; ++entry) {
    if (from[static_cast<size_t>(entry)] != entry) moved.push_back(entry);
  }
  if (moved.empty()) return;
  const auto ending = fmt::format(".{}x{}", size.batch, size.cache);
  Device& device = arenas_->device();
  for (const auto& [name, slot] : program_.layout().slots) {
    const std::string& owner = slot.key.owner;
    if (slot.key.use != StateUse::kv_cache || !owner.ends_with(ending) || is_source_cache(owner))
      continue;
    const int64_t entry_bytes = slot.type.n_bytes() / size.batch;
    const int64_t n_bytes = bytes_of_rows(slot, size, n_rows), n_moved = std::ssize(moved);
    if (held_ == nullptr || held_->bytes() < n_moved * n_bytes)
      held_ = device.allocate(size.batch * entry_bytes);
    std::byte* const first = arenas_->arena(slot.arena) + slot.offset;
    for (int64_t i = 0; i < n_moved; ++i) {
      const int64_t source = from[static_cast<size_t>(moved[static_cast<size_t>(i)])];
      device.copy_within(held_->data() + i * n_bytes, first + source * entry_bytes, n_bytes);
    }
    for (int64_t i = 0; i < n_moved; ++i)
      device.copy_within(first + moved[static_cast<size_t>(i)] * entry_bytes,
                         held_->data() + i * n_bytes, n_bytes);
  }
}

void Inference::move_states(const CacheEntry& entry, int64_t place, StatesGo where) {
  CHECK(place >= 0 && place <= entry.size.batch);
  const auto ending = fmt::format(".{}x{}", entry.size.batch, entry.size.cache);
  std::vector<const Layout::Slot*> states;
  int64_t place_bytes = 0;
  for (const auto& [name, slot] : program_.layout().slots) {
    const std::string& owner = slot.key.owner;
    if (slot.key.use != StateUse::kv_cache || !owner.ends_with(ending)) continue;
    if (!is_recurrent_cache(owner)) continue;
    states.push_back(&slot);
    place_bytes += slot.type.n_bytes() / entry.size.batch;
  }
  Device& device = arenas_->device();
  if (kept_states_ == nullptr) kept_states_ = device.allocate((entry.size.batch + 1) * place_bytes);
  std::byte* at = kept_states_->data() + place * place_bytes;
  for (const Layout::Slot* const slot : states) {
    const int64_t n_bytes = slot->type.n_bytes() / entry.size.batch;
    std::byte* const state = arenas_->arena(slot->arena) + slot->offset + entry.entry * n_bytes;
    if (where == StatesGo::to_place) {
      device.copy_within(at, state, n_bytes);
    } else {
      device.copy_within(state, at, n_bytes);
    }
    at += n_bytes;
  }
}

void Inference::keep_states(const CacheEntry& from, int64_t place) {
  move_states(from, place, StatesGo::to_place);
}

void Inference::restore_states(const CacheEntry& to, int64_t place) {
  move_states(to, place, StatesGo::from_place);
}

void Inference::copy_sources(int64_t n_from, int64_t n_to) {
  CHECK(n_from > 0 && n_to % n_from == 0);
  const auto from_batch = fmt::format(".{}x", n_from), to_batch = fmt::format(".{}x", n_to);
  const auto& slots = program_.layout().slots;
  for (const auto& [name, slot] : slots) {
    const std::string& owner = slot.key.owner;
    if (slot.key.use != StateUse::kv_cache || !is_source_cache(owner)) continue;
    const size_t at = owner.find(from_batch);
    if (at == std::string::npos) continue;
    std::string other = owner;
    const Layout::Slot& to =
        slots.at(state_name(StateUse::kv_cache, other.replace(at, from_batch.size(), to_batch)));
    const int64_t n_bytes = slot.type.n_bytes() / n_from;
    for (int64_t entry = 0; entry < n_to; ++entry) {
      arenas_->device().copy_within(
          arenas_->arena(to.arena) + to.offset + entry * n_bytes,
          arenas_->arena(slot.arena) + slot.offset + entry * n_from / n_to * n_bytes, n_bytes);
    }
  }
}

int64_t Inference::planned_bytes() const {
  int64_t total = 0;
  for (int arena = 0; arena < kArenaCount; ++arena)
    total += arenas_->bytes(static_cast<Arena>(arena));
  return total;
}

}  // namespace octet
