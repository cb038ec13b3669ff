#include "bench/step_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/integer.h"
#include "base/philox.h"
#include "infer/model_spec.h"
#include "passes/precision/recipe.h"
#include "train/run_setup.h"
#include "train/weights.h"

namespace octet {
namespace {

// Begin of each token's document, in every row.
std::vector<int32_t> equal_documents(int64_t batch, int64_t seq, int64_t documents) {
  std::vector<int32_t> starts;
  const int64_t length = ceil_div(seq, documents);
  for (int64_t i = 0; i < batch * seq; ++i) {
    starts.push_back(static_cast<int32_t>(i % seq / length * length));
  }
  return starts;
}

// Bound that random values of an input lie below: its table's rows, classes, or places in a row.
int64_t bound_of(const InputSpec& input, const ModelSpec& spec, int64_t seq) {
  if (input.bound > 0) return input.bound;
  return input.name == "labels" ? spec.classes : seq;
}

Batch random_batch(const RunConfig& config, const ModelSpec& spec, int64_t number) {
  const RandomStream random{.name = name_hash(fmt::format("bench batch {}", number))};
  const std::vector<WeightedLoss> losses = run_losses(config, spec);
  Batch batch{.batch = config.train.batch,
              .seq = config.model.seq,
              .rows_per_sample = rows_per_sample(losses)};
  uint64_t at = 0;
  for (const InputSpec& input :
       batch_inputs(spec, {.batch = batch.batch, .seq = batch.seq}, losses)) {
    if (std::ranges::count(completed_inputs(), input.name)) continue;
    const auto bound = static_cast<uint32_t>(bound_of(input, spec, batch.seq));
    std::visit(
        [&]<typename T>(std::vector<T>& values) {
          for (T& value : values) {
            const uint64_t i = at++;
            if constexpr (std::is_integral_v<T>) {
              value = static_cast<T>(random.bits(i) % bound);
            } else {
              value = random.normal(i);
            }
          }
        },
        batch.add(input).values);
  }
  return batch;
}

// First values as training has them. Of large tensors a block repeats, begun elsewhere in each, as
// drawing billions takes minutes; it is far larger than what a product works on at a time, since
// products of data that repeats run faster.
std::vector<float> block_of_values(const ParameterSpec& parameter) {
  constexpr int64_t kBlock = 1 << 24;
  const int64_t n = n_elems(parameter.shape);
  if (n < kBlock / 4 || parameter.init != Init::normal) return initial_values(parameter, 1);
  static const std::vector<float> block =
      initial_values({.name = "bench", .shape = {kBlock}, .init = Init::normal, .std = 1}, 1);
  const auto scale = static_cast<float>(parameter.std);
  uint64_t at = name_hash(parameter.name) % kBlock;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = scale * block[at++ % kBlock];
  return values;
}

}  // namespace

StepRunner::StepRunner(const RunConfig& config, int64_t documents, const BenchMachine& machine,
                       Group* group)
    : config_(config),
      spec_(model_from_config(posix_files(), config)),
      engine_(program_options(config, spec_, group == nullptr ? 0 : group->rank()),
              *machine.backend.device, *machine.backend.catalogue, group) {
  const int64_t first = group == nullptr ? 0 : group->rank() * config.train.accumulate;
  write_weights(engine_.arenas(), engine_.layout(), model_parameters(spec_), block_of_values);
  for (int64_t i = 0; i < config.train.accumulate; ++i) {
    batches_.push_back(random_batch(config, spec_, first + i));
    if (row_documents(config) == RowDocuments::isolated) {
      batches_.back().set(doc_starts_input(), equal_documents(config.train.batch, config.model.seq,
                                                              std::max(documents, int64_t{1})));
    }
    engine_.stage(batches_.back());  // as a run's reading thread does
  }
}

double StepRunner::step_ms(Profile* profile) {
  ++n_steps_;
  if (profile != nullptr) profile->begin_step(n_steps_);
  engine_.observe(profile != nullptr ? profile->observer() : StepObserver{});
  // A tenth, as these steps have no warm-up.
  const StepScalars scalars{.lr = static_cast<float>(config_.optim.lr / 10),
                            .applied = n_steps_,
                            .clip = static_cast<float>(config_.optim.clip)};
  const auto start = std::chrono::steady_clock::now();
  last_ = engine_.step(batches_, scalars);
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  if (n_steps_ == 1) first_ = last_;
  return passed.count();
}

int64_t StepRunner::tokens() const {
  return config_.train.batch * row_tokens(spec_, config_.model.seq) * config_.train.accumulate;
}

double StepRunner::model_flops() const {
  int64_t multiplied = 0;
  for (const ParameterSpec& parameter : model_parameters(spec_)) {
    if (parameter.shape.size() == 2) multiplied += n_elems(parameter.shape);
  }
  // Tables that are only looked up; a tied embedding multiplies as the head.
  const ModelDef& def = model_def(spec_.kind);
  const int64_t seq = row_tokens(spec_, config_.model.seq);
  if (def.reads_text && !spec_.tied) multiplied -= spec_.vocab * spec_.hidden;
  if (def.positions == Positions::learned)
    multiplied -= (def.reads_text ? spec_.max_positions : seq) * spec_.hidden;
  // A causal mask leaves half of it.
  const double attention = (def.writes_text ? 6.0 : 12.0) *
                           static_cast<double>(seq * spec_.layers) *
                           static_cast<double>(spec_.heads * spec_.head_dim);
  return (6.0 * static_cast<double>(multiplied) + attention) * static_cast<double>(tokens());
}

double StepRunner::gemm_rate(const Ceilings& ceilings) const {
  const Dtype compute = config_.recipe.compute.value();
  return compute == Dtype::bf16 ? ceilings.narrow_flops_per_s : ceilings.f32_flops_per_s;
}

std::string StepRunner::shape_text() const {
  const std::string more =
      config_.train.accumulate > 1 ? fmt::format(" x {}", config_.train.accumulate) : "";
  return fmt::format("{} {:.2f} M, {}{} x {} tokens", model_def(spec_.kind).name,
                     static_cast<double>(parameter_count(spec_)) / 1e6, config_.train.batch, more,
                     row_tokens(spec_, config_.model.seq));
}

}  // namespace octet
