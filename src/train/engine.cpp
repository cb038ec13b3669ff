#include "train/engine.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "compile/budget.h"
#include "infer/batch_inputs.h"
#include "infer/read_rows.h"
#include "optim/rules/rule.h"
#include "plan/kernel_row.h"
#include "plan/row_unavailable.h"
#include "train/rank_step.h"
#include "train/step_inputs.h"
#include "train/update_outcome.h"

namespace octet {
namespace {

bool is_overflow(bool nonfinite, float loss, const std::optional<LossScaleReport>& found) {
  return found && nonfinite && std::isfinite(loss) &&
         static_cast<double>(found->scale) > kMinLossScale;
}

// `found`: the loss scale before the step, where there is one.
StepOutcome with_loss_scale(StepOutcome outcome, const std::optional<LossScaleReport>& found) {
  outcome.loss_scale = found;
  outcome.overflowed = is_overflow(outcome.nonfinite, outcome.loss, found);
  return outcome;
}

// Sums begin as the devices of the ranks reach each other.
ProgramOptions on_device(ProgramOptions options, const Device& device) {
  options.parallel.ranks_a_host = device.ranks_a_host();
  return options;
}

}  // namespace

TrainEngine::TrainEngine(ProgramOptions options, Device& device, Catalogue& catalogue, Group* group)
    : program_(fit_to_budget(on_device(options, device), catalogue)),
      size_(options.train),
      group_(group) {
  CHECK(options.parallel.ranks == (group == nullptr ? 1 : group->size()));
  std::vector<FunctionKey> keys = program_->train_keys();
  for (const FunctionKey& key : program_->evaluate_keys()) keys.push_back(key);
  for (const FunctionKey& key : program_->text_keys()) keys.push_back(key);
  if (program_->has_derived()) keys.push_back({function::prepare_state, size_});
  if (group_ != nullptr) keys.push_back({function::gather_weights, size_});
  const DeviceInfo info = device.info();
  expect_fits(*program_, catalogue, {info.memory_bytes, "available on " + info.name});
  bind_available_rows(catalogue, [&] {
    bound_.clear();
    for (const FunctionKey& key : keys) program_->plan(key);
    allocate(device, catalogue, keys);
    for (const FunctionKey& key : keys)
      bound_[key] = std::make_unique<BoundPlan>(program_->plan(key), catalogue, *arenas_);
  });
  for (const FunctionKey& key : keys) weights_.add(*bound_[key]);
  staging_ = std::make_unique<BatchStaging>(device, program_->plan(keys.front()).graph);
}

// Ranks try their collectives in the memory that the run will have. A plan without a row that was
// struck may need more.
void TrainEngine::allocate(Device& device, Catalogue& catalogue,
                           const std::vector<FunctionKey>& keys) {
  int64_t arena_bytes[kArenaCount];
  program_->arena_bytes(arena_bytes);
  if (arenas_ && arenas_->hold(arena_bytes)) return;
  if (arenas_ && group_ != nullptr)
    throw Error(ErrorCode::device,
                "[plan] expected kernels that every rank has, got none of '{}' here, and the plan "
                "without it needs more memory than the ranks share already; choose another recipe",
                fmt::join(catalogue.target().without, ", "));
  arenas_.reset();
  std::optional<RankSelfTest> test;
  if (group_ != nullptr && device.info().reaches_peers) {
    CollectiveKinds kinds;
    for (const FunctionKey& key : keys) add_kinds(program_->plan(key), kinds);
    test.emplace(kinds, *group_, catalogue);
    test->raise(arena_bytes);
  }
  arenas_ = std::make_unique<Arenas>(device, arena_bytes);
  if (group_ != nullptr) arenas_->connect(*group_);
  if (test) self_test_ = test->run(catalogue, *arenas_);
}

BatchSize TrainEngine::size_of(const Batch& batch) const {
  const HostTensor* source = batch.find("source");
  for (const BatchSize& size : program_->options().batches) {
    const bool is_same = size.batch == batch.batch && size.seq == batch.seq;
    if (is_same && source != nullptr && source->spec.n_inner() == size.source) return size;
  }
  BatchSize size = size_;
  size.seq = batch.seq;
  return size;
}

BoundPlan& TrainEngine::function(const FunctionKey& key) {
  const auto found = bound_.find(key);
  CHECK(found != bound_.end());
  return *found->second;
}

void TrainEngine::write_scalars(BoundPlan& function, const StepScalars& scalars) {
  std::vector<BoundPlan::HostInput> inputs = {{"lr", &scalars.lr, sizeof(float)},
                                              {"clip", &scalars.clip, sizeof(float)}};
  if (function.has_input("attempt"))
    inputs.push_back({"attempt", &scalars.attempt, sizeof(uint32_t)});
  std::list<float> values;
  std::vector<HostBytes> parts;
  const Plan& plan = function.plan();
  for (const GraphInput& input : plan.graph.inputs) {
    if (input.kind != InputKind::step_scalar) continue;
    const auto [name, parameter] = parameter_of_scalar(input.name);
    const UpdateRule* rule = rule_of_scalar(name);
    if (rule == nullptr) continue;
    const auto own = scalars.own.find(std::string(parameter));
    const int64_t t = own == scalars.own.end() ? scalars.applied : own->second;
    values.push_back(rule->scalar(name, program_->options().optim, t));
    if (parameter.empty())
      inputs.push_back({name, &values.back(), sizeof(float)});
    else
      parts.push_back({arenas_->address(plan, input.value), &values.back(), sizeof(float)});
  }
  function.write_inputs(inputs);
  if (!parts.empty()) arenas_->device().copy_in_all(parts);
}

// A captured graph cannot stop for the host.
void TrainEngine::run(BoundPlan& function, const std::function<void()>& before_update) {
  with_weights(function);
  const bool waits = before_overwrite_ && function.overwrites_state();
  if (!waits && !before_update && !observer_) {
    function.run();
  } else {
    function.run(observer_, waits ? std::exchange(before_overwrite_, {}) : std::function<void()>(),
                 before_update);
  }
  weights_.note(function);
}

BoundPlan& TrainEngine::with_weights(BoundPlan& reader) {
  if (!weights_.lacks(reader)) return reader;
  BoundPlan& gather = function(function::gather_weights);
  gather.run();
  weights_.note(gather);
  CHECK(!weights_.lacks(reader));
  return reader;
}

// Periodic scales are 1 until they are measured first; states begin at 0.
void TrainEngine::begin_scales() {
  for (const auto& [name, slot] : program_->layout().slots) {
    if (slot.key.use != StateUse::rescale_factor || slot.arena != Arena::persistent) continue;
    std::byte* const at = arenas_->arena(slot.arena) + slot.offset;
    float scale = 0;
    arenas_->device().copy_out(&scale, at, sizeof(scale));
    if (scale != 0) continue;
    scale = 1;
    arenas_->device().copy_in(at, &scale, sizeof(scale));
  }
}

void TrainEngine::prepare_state() {
  begin_scales();
  if (program_->has_derived()) with_weights(function(function::prepare_state)).run();
  prepared_ = true;
}

void TrainEngine::prepare_once() {
  if (!prepared_) prepare_state();
}

StepOutcome TrainEngine::step(std::span<const Batch> micro_batches, const StepScalars& scalars) {
  MicroBatches batches{.count = micro_batches.size(),
                       .read = [&](size_t i) { return micro_batches[i]; }};
  std::set<std::string> counted = {"rows"};
  for (const LossTerm& loss : program_->options().losses) counted.insert(loss.counted);
  for (const Batch& batch : micro_batches) {
    for (const std::string& name : counted) batches.items[name] += batch.n_items(name);
  }
  return step(batches, scalars);
}

// Micro-batches change accumulators alone, which no checkpoint holds.
TrainEngine::BegunStep TrainEngine::begin_step(const MicroBatches& batches,
                                               const StepScalars& scalars) {
  BegunStep begun;
  const auto n_ranks = static_cast<size_t>(program_->options().parallel.ranks);
  const auto rank = static_cast<size_t>(program_->layout().rank);
  const bool is_one = program_->options().accumulate == 1;
  const StepKind kind = step_kind(program_->options(), scalars.attempt);
  CHECK(!is_one || batches.count == 1);
  for (size_t i = 0; i < batches.count; ++i) {
    const Batch batch = batches.read(i);
    const std::string_view name = is_one   ? function::step
                                  : i == 0 ? function::micro_first
                                           : function::micro_next;
    BoundPlan& micro = function({name, size_of(batch), kind});
    if (group_ != nullptr) begun.rows = hash_of_rows(begun.rows, batch);
    std::vector<InputBytes> more = step_scalars(program_->options(), batches.items);
    const RandomStream random{.seed = program_->options().optim.seed,
                              .step = scalars.attempt,
                              .micro_batch = static_cast<uint32_t>(i * n_ranks + rank)};
    add_dropout(micro.plan().graph, program_->options(), random, more);
    add_rounding_draw(micro.plan().graph, random, more);
    upload(micro, batch, more);
    if (is_one) {
      begun.last = &micro;
      break;
    }
    run(micro);
    begun.losses.push_back(micro.read_scalar("loss"));
  }
  if (!is_one) begun.last = &function({function::update, size_, kind});
  write_scalars(*begun.last, scalars);
  return begun;
}

StepOutcome TrainEngine::step(const MicroBatches& batches, const StepScalars& scalars) {
  prepare_once();
  save_histories();
  const auto loss_scale = read_loss_scale();
  std::optional<NonfiniteSite> site;
  BegunStep begun = begin_step(batches, scalars);
  const auto look = [&] {
    if (is_to_trace(begun, loss_scale)) site = trace_nonfinite(batches, scalars);
  };
  run_update(begun, is_tracing_ ? look : std::function<void()>());
  StepOutcome outcome = read_update(*begun.last, arenas_->device());
  const RankStep own{.losses = begun.losses,
                     .grad_norm = outcome.grad_norm,
                     .nonfinite = outcome.nonfinite,
                     .attempt = scalars.attempt,
                     .skipped_tensors = outcome.skipped_tensors,
                     .rows = begun.rows};
  const CommonStep common = gather_step(group_, own);
  outcome.loss = static_cast<float>(common.loss);
  outcome.equal_losses = common.equal_losses;
  outcome.partial = outcome.skipped_tensors.size() < n_judged_alone(*begun.last);
  outcome.site = std::move(site);
  is_whole_ = true;
  return with_loss_scale(std::move(outcome), loss_scale);
}

std::optional<LossScaleReport> TrainEngine::read_loss_scale() {
  const LossScalePolicy& policy = program_->options().loss_scale;
  if (!policy) return std::nullopt;
  const auto read = [&](std::string_view owner, double first) {
    float value = 0;
    const auto& slot = program_->layout().slots.at(state_name(StateUse::loss_scale, owner));
    arenas_->device().copy_out(&value, arenas_->arena(slot.arena) + slot.offset, sizeof(value));
    return value == 0 ? static_cast<float>(first) : value;
  };
  return LossScaleReport{.scale = read(kLossScaleValue, policy.first),
                         .window = read(kLossScaleWindow, policy.first_window()),
                         .good_steps = read(kLossScaleGoodSteps, 0)};
}

void TrainEngine::run_update(BegunStep& step, const std::function<void()>& before_update) {
  is_whole_ = false;
  run(*step.last, before_update);
  if (step.losses.empty()) step.losses = {step.last->read_scalar("loss")};
}

void TrainEngine::enable_tracing() {
  is_tracing_ = true;
  for (const auto& [key, function] : bound_) {
    for (const char* output : {"loss", "found_nonfinite"}) {
      const bool is_update = function->has_output("found_nonfinite");
      CHECK(!is_update || !function->has_output(output) || function->is_before_update(output));
    }
  }
  for (const auto& [name, slot] : program_->layout().slots) {
    const StateDef& def = state_def(slot.key.use);
    const bool changes = def.gathered_in != StateUse::none || def.on_skip == OnSkip::moves;
    if (!changes) continue;
    const auto n_bytes = static_cast<size_t>(slot.type.n_bytes());
    histories_.push_back(
        {arenas_->arena(slot.arena) + slot.offset, std::vector<std::byte>(n_bytes)});
  }
}

void TrainEngine::save_histories() {
  for (SavedState& state : histories_) {
    const auto n_bytes = std::ssize(state.bytes);
    arenas_->device().copy_out(state.bytes.data(), state.at, n_bytes);
  }
}

// Between a step's backward pass and its update: one answer of all ranks.
bool TrainEngine::is_to_trace(const BegunStep& step,
                              const std::optional<LossScaleReport>& loss_scale) const {
  uint8_t found = 0;
  step.last->read_output("found_nonfinite", &found, sizeof(found));
  std::vector<float> losses = step.losses;
  if (losses.empty()) losses = {step.last->read_scalar("loss")};
  const auto loss = static_cast<float>(sum_over_ranks(group_, losses));
  const bool is_skipped = found != 0 && !is_overflow(found != 0, loss, loss_scale);
  return is_skipped || !std::isfinite(loss);
}

// Leaves memory as the step that it is called in had it.
std::optional<NonfiniteSite> TrainEngine::trace_nonfinite(const MicroBatches& batches,
                                                          const StepScalars& scalars) {
  for (const SavedState& state : histories_) {
    arenas_->device().copy_in(state.at, state.bytes.data(), std::ssize(state.bytes));
  }
  NonfiniteWatch watch(*arenas_);
  const StepObserver kept = std::exchange(observer_, watch.observer());
  with_weights(*begin_step(batches, scalars).last).run_to_update(observer_);
  observer_ = kept;
  return watch.site();
}

RunEvaluation TrainEngine::evaluate(const EvalRows& rows) {
  prepare_once();
  const std::vector<LossTerm>& losses = program_->options().losses;
  RunEvaluation total;
  for (const LossTerm& loss : losses) {
    for (const std::string& metric : loss.metrics) total.metrics.push_back({.name = metric});
  }
  const int rank = group_ == nullptr ? 0 : group_->rank();
  const int64_t turn = program_->options().parallel.ranks * size_.batch;
  for (int64_t first = 0; first < rows.n_rows(); first += turn) {
    // Past the last row a batch has no labels.
    const Batch batch = rows.at(first + rank * size_.batch, size_.batch);
    const RunEvaluation own =
        evaluate_batch(with_weights(function({function::evaluate, size_of(batch)})), batch, losses);
    for (size_t i = 0; i < total.metrics.size(); ++i) {
      for (const NllSum& part : gather_value(group_, own.metrics[i].sum))
        total.metrics[i].sum.add(part);
      std::ranges::move(
          gather_values(group_, std::span<const PredictedNumber>(own.metrics[i].numbers)),
          std::back_inserter(total.metrics[i].numbers));
    }
  }
  return total;
}

std::vector<float> TrainEngine::logits(const Batch& row, int64_t first, int64_t n) {
  prepare_once();
  BoundPlan& plan = with_weights(function({function::logits, {.batch = 1, .seq = row.seq}}));
  upload(plan, row);
  plan.run();
  std::vector<float> logits = read_rows(arenas_->device(), plan, "logits", {first, n});
  if (group_ != nullptr) {
    const auto bytes = std::as_writable_bytes(std::span(logits));
    group_->broadcast(bytes.data(), std::ssize(bytes), 0);
  }
  return logits;
}

bool TrainEngine::has_row(std::string_view begin) const {
  const auto begins_so = [&](const PlanStep& s) { return s.kernel.row->name.starts_with(begin); };
  return std::ranges::any_of(bound_, [&](const auto& f) {
    return std::ranges::any_of(f.second->plan().steps, begins_so);
  });
}

int64_t TrainEngine::planned_bytes() const {
  int64_t arena_bytes[kArenaCount];
  program_->arena_bytes(arena_bytes);
  return std::accumulate(std::begin(arena_bytes), std::end(arena_bytes), int64_t{0});
}

const Plan& TrainEngine::largest_plan() const {
  const Plan* largest = nullptr;
  for (const FunctionKey& key : program_->train_keys()) {
    if (key.size != program_->options().train) continue;
    const Plan& plan = program_->plan(key);
    if (largest == nullptr || plan.peak_bytes() > largest->peak_bytes()) largest = &plan;
  }
  CHECK(largest != nullptr);
  return *largest;
}

int64_t TrainEngine::state_bytes() const {
  int64_t total = 0;
  for (const auto& [name, slot] : program_->layout().slots) {
    if (slot.kind == InputKind::state && layout().is_in_checkpoints(slot))
      total += slot.type.n_bytes();
  }
  return total;
}

}  // namespace octet
