#include "train/engine.h"

#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "compile/budget.h"
#include "infer/batch_inputs.h"
#include "infer/stored_weights.h"

namespace octet {
namespace {

bool read_quantizer_flag(const BoundPlan& function, Device& device) {
  const std::string output(kQuantizerFlag), input = state_name(StateUse::accumulated_flag, "");
  const std::byte* at = function.has_output(output) ? function.output(output)
                        : function.has_input(input) ? function.input(input)
                                                    : nullptr;
  uint8_t flag = 0;
  if (at != nullptr) device.copy_out(&flag, at, sizeof(flag));
  return flag != 0;
}

std::vector<std::string> read_refused(const BoundPlan& function) {
  std::vector<std::string> refused;
  for (const GraphOutput& output : function.plan().graph.outputs) {
    const auto parameter = nonfinite_parameter(output.name);
    if (!parameter) continue;
    uint8_t flag = 0;
    function.read_output(output.name, &flag, sizeof(flag));
    if (flag != 0) refused.push_back(*parameter);
  }
  return refused;
}

StepOutcome read_update(const BoundPlan& function, double loss, Device& device) {
  StepOutcome outcome;
  outcome.loss = static_cast<float>(loss);
  outcome.grad_norm = function.read_scalar("grad_norm");
  uint8_t flag = 0;
  function.read_output("found_nonfinite", &flag, sizeof(flag));
  outcome.nonfinite = flag != 0;
  outcome.flagged = read_quantizer_flag(function, device);
  if (outcome.nonfinite) outcome.refused = read_refused(function);
  return outcome;
}

// `found`: the loss scale before the step, where there is one.
StepOutcome with_loss_scale(StepOutcome outcome, const std::optional<LossScaleReport>& found) {
  outcome.loss_scale = found;
  outcome.overflowed = found && outcome.nonfinite && std::isfinite(outcome.loss) &&
                       static_cast<double>(found->scale) > kLeastLossScale;
  return outcome;
}

void write_scalars(BoundPlan& function, const StepScalars& scalars) {
  std::vector<BoundPlan::HostInput> inputs = {{"lr", &scalars.lr, sizeof(float)},
                                              {"adam_c1", &scalars.c1, sizeof(float)},
                                              {"adam_c2", &scalars.c2, sizeof(float)},
                                              {"clip", &scalars.clip, sizeof(float)}};
  if (function.has_input("attempt"))
    inputs.push_back({"attempt", &scalars.attempt, sizeof(uint32_t)});
  function.write_inputs(inputs);
}

float inverse_of(int64_t n_labels) {
  return n_labels > 0 ? static_cast<float>(1.0 / static_cast<double>(n_labels)) : 0.0f;
}

// The masks of adapters' inputs; random words are counted by element.
void write_dropout(BoundPlan& function, const ProgramOptions& options, uint32_t attempt,
                   uint32_t micro_batch) {
  if (options.lora.dropout == 0) return;
  const Graph& graph = function.plan().graph;
  const double share = options.lora.dropout;
  for (const GraphInput& input : graph.inputs) {
    if (!dropout_module(input.name)) continue;
    const RandomStream random{.name = name_hash(input.name),
                              .seed = options.optim.seed,
                              .step = attempt,
                              .micro_batch = micro_batch};
    const TensorType& type = graph.type(input.value);
    std::vector<float> mask(static_cast<size_t>(type.n_elems()));
    const auto kept = static_cast<float>(1 / (1 - share));
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = static_cast<double>(random.uniform(i)) < share ? 0.0f : kept;
    const std::vector<std::byte> bytes = encode_weights(mask, type.dtype);
    function.write_input(input.name, bytes.data(), type.n_bytes());
  }
}

}  // namespace

TrainEngine::TrainEngine(ProgramOptions options, Device& device, Catalogue& catalogue, Group* group)
    : program_(fit_to_budget(options, catalogue), catalogue), size_(options.train), group_(group) {
  CHECK(options.parallel.ranks == (group == nullptr ? 1 : group->size()));
  std::vector<FunctionKey> keys = program_.train_keys();
  for (const FunctionKey& key : program_.evaluate_keys()) keys.push_back(key);
  if (program_.has_derived()) keys.push_back({function::prepare_state, size_});
  const DeviceInfo info = device.info();
  expect_fits(program_, catalogue, {info.memory_bytes, "available on " + info.name});
  for (const FunctionKey& key : keys) program_.plan(key.name, key.size);
  allocate(device, catalogue, keys);
  for (const FunctionKey& key : keys) {
    bound_[key] =
        std::make_unique<BoundPlan>(program_.plan(key.name, key.size), catalogue, *arenas_);
  }
}

// Ranks try their collectives in the memory that the run will have.
void TrainEngine::allocate(Device& device, Catalogue& catalogue,
                           const std::vector<FunctionKey>& keys) {
  int64_t lane_bytes[kLaneCount];
  program_.lane_bytes(lane_bytes);
  std::optional<RankSelfTest> test;
  if (group_ != nullptr && device.info().reaches_peers) {
    CollectiveKinds kinds;
    for (const FunctionKey& key : keys) add_kinds(program_.plan(key.name, key.size), kinds);
    test.emplace(kinds, *group_, catalogue);
    test->raise(lane_bytes);
  }
  arenas_ = std::make_unique<Arenas>(device, lane_bytes);
  if (group_ != nullptr) arenas_->connect(*group_);
  if (test) self_test_ = test->run(catalogue, *arenas_);
}

BoundPlan& TrainEngine::function(std::string_view name, int64_t seq) {
  FunctionKey key{name, size_};
  key.size.seq = seq;
  const auto found = bound_.find(key);
  CHECK(found != bound_.end());
  return *found->second;
}

// A recording cannot stop for the host.
void TrainEngine::run(BoundPlan& function) {
  if (before_overwrite_ && function.overwrites_state()) {
    function.run(observer_, std::exchange(before_overwrite_, {}));
  } else if (observer_) {
    function.run(observer_);
  } else {
    function.run();
  }
}

void TrainEngine::prepare_state() {
  if (program_.has_derived()) function(function::prepare_state).run();
  prepared_ = true;
}

void TrainEngine::prepare_once() {
  if (!prepared_) prepare_state();
}

StepOutcome TrainEngine::step(std::span<const Batch> micro_batches, const StepScalars& scalars) {
  MicroBatches batches{.count = micro_batches.size(),
                       .read = [&](size_t i) { return micro_batches[i]; }};
  for (const Batch& batch : micro_batches) batches.n_labels += batch.n_labels();
  return step(batches, scalars);
}

// Micro-batches change accumulators alone, which no checkpoint holds.
StepOutcome TrainEngine::step(const MicroBatches& batches, const StepScalars& scalars) {
  prepare_once();
  const float inv_n = inverse_of(batches.n_labels);
  const auto place = [&](size_t i) {
    const auto n_ranks = static_cast<size_t>(program_.options().parallel.ranks);
    return static_cast<uint32_t>(i * n_ranks + static_cast<size_t>(program_.layout().rank));
  };
  save_histories();
  const auto loss_scale = read_loss_scale();
  if (program_.options().accumulate == 1) {
    CHECK(batches.count == 1);
    const Batch batch = batches.read(0);
    BoundPlan& step = function(function::step, batch.seq);
    write_batch(step, batch, inv_n);
    write_dropout(step, program_.options(), scalars.attempt, place(0));
    return with_loss_scale(run_update(step, scalars, {}), loss_scale);
  }
  std::vector<float> losses;
  for (size_t i = 0; i < batches.count; ++i) {
    const Batch batch = batches.read(i);
    BoundPlan& micro = function(i == 0 ? function::micro_first : function::micro_next, batch.seq);
    write_batch(micro, batch, inv_n);
    write_dropout(micro, program_.options(), scalars.attempt, place(i));
    run(micro);
    losses.push_back(micro.read_scalar("loss"));
  }
  return with_loss_scale(run_update(function(function::update), scalars, std::move(losses)),
                         loss_scale);
}

std::optional<LossScaleReport> TrainEngine::read_loss_scale() {
  const LossScalePolicy& policy = program_.options().loss_scale;
  if (!policy) return std::nullopt;
  const auto read = [&](std::string_view owner, double first) {
    float value = 0;
    const auto& slot = program_.layout().slots.at(state_name(StateUse::loss_scale, owner));
    arenas_->device().copy_out(&value, arenas_->lane(slot.lane) + slot.offset, sizeof(value));
    return value == 0 ? static_cast<float>(first) : value;
  };
  return LossScaleReport{.scale = read(kLossScaleValue, policy.first),
                         .window = read(kLossScaleWindow, policy.first_window()),
                         .good_steps = read(kLossScaleGoodSteps, 0)};
}

StepOutcome TrainEngine::run_update(BoundPlan& plan, const StepScalars& scalars,
                                    std::vector<float> losses) {
  write_scalars(plan, scalars);
  is_whole_ = false;
  run(plan);
  if (losses.empty()) losses = {plan.read_scalar("loss")};
  const StepOutcome outcome = read_update(plan, sum_over_ranks(losses), arenas_->device());
  is_whole_ = true;
  return outcome;
}

void TrainEngine::enable_tracing() {
  for (const auto& [name, slot] : program_.layout().slots) {
    const bool is_kept = slot.key.use == StateUse::amax_history ||
                         slot.key.use == StateUse::rescale_factor ||
                         slot.key.use == StateUse::loss_scale;
    if (!is_kept) continue;
    const auto n_bytes = static_cast<size_t>(slot.type.n_bytes());
    histories_.push_back({arenas_->lane(slot.lane) + slot.offset, std::vector<std::byte>(n_bytes)});
  }
}

void TrainEngine::save_histories() {
  for (SavedState& state : histories_) {
    const auto n_bytes = static_cast<int64_t>(state.bytes.size());
    arenas_->device().copy_out(state.bytes.data(), state.at, n_bytes);
  }
}

std::optional<NonfiniteSite> TrainEngine::trace_nonfinite(const MicroBatches& batches,
                                                          const StepScalars& scalars) {
  for (const SavedState& state : histories_) {
    arenas_->device().copy_in(state.at, state.bytes.data(),
                              static_cast<int64_t>(state.bytes.size()));
  }
  NonfiniteWatch watch(*arenas_);
  const StepObserver kept = std::exchange(observer_, watch.observer());
  step(batches, scalars);
  observer_ = kept;
  return watch.site();
}

// In the order of the step's micro-batches.
double TrainEngine::sum_over_ranks(const std::vector<float>& losses) const {
  const std::vector<float> all = gather_values<float>(group_, losses);
  const size_t n = losses.size(), n_ranks = all.size() / n;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t rank = 0; rank < n_ranks; ++rank) sum += static_cast<double>(all[rank * n + i]);
  }
  return sum;
}

NllSum TrainEngine::evaluate(const EvalRows& rows) {
  prepare_once();
  NllSum total;
  const int rank = group_ == nullptr ? 0 : group_->rank();
  const int64_t turn = program_.options().parallel.ranks * size_.batch;
  for (int64_t first = 0; first < rows.n_rows(); first += turn) {
    // Past the last row a batch has no labels.
    const Batch batch = rows.at(first + rank * size_.batch, size_.batch);
    const NllSum own = batch_nll(function(function::evaluate, batch.seq), batch);
    for (const NllSum& part : gather_value(group_, own)) total.add(part);
  }
  return total;
}

int64_t TrainEngine::planned_bytes() const {
  int64_t lane_bytes[kLaneCount];
  program_.lane_bytes(lane_bytes);
  return std::accumulate(std::begin(lane_bytes), std::end(lane_bytes), int64_t{0});
}

int64_t TrainEngine::state_bytes() const {
  int64_t total = 0;
  for (const auto& [name, slot] : program_.layout().slots) {
    const bool is_state = slot.kind == InputKind::state && slot.lane == Lane::persistent;
    if (is_state) total += slot.type.n_bytes();
  }
  return total;
}

}  // namespace octet
