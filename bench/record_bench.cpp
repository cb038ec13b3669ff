#include "bench/record_bench.h"

#include "base/error.h"
#include "device/energy.h"
#include "train/open_run.h"
#include "train/stopwatch.h"
#include "train/trainer.h"

namespace octet {
namespace {

// Sums what spans of work take.
class Meter {
 public:
  explicit Meter(EnergyCounter& energy) : energy_(energy) {}
  void run(const std::function<void()>& work) {
    energy_.take();
    const Stopwatch watch;
    work();
    seconds_ += watch.seconds();
    const std::optional<double> joules = energy_.take();
    joules_ += joules.value_or(0);
    is_counted_ = is_counted_ && joules.has_value();
  }
  double seconds() const { return seconds_; }
  std::optional<double> joules() const {
    return is_counted_ ? std::optional(joules_) : std::nullopt;
  }

 private:
  EnergyCounter& energy_;
  double seconds_ = 0, joules_ = 0;
  bool is_counted_ = true;
};

Record measure(const BenchMachine& machine, const RecordCase& what, EnergyCounter& energy,
               const std::string& recipe) {
  const Stopwatch start;
  const OpenRun run = open_run(posix_files(), what.config(recipe), {.data = {.log = machine.log}});
  const TrainConfig& train = run.loaded.config.train;
  Trainer trainer(run.loaded.config, run.data,
                  {.files = posix_files(),
                   .device = *machine.backend.device,
                   .catalogue = *machine.backend.catalogue,
                   .isa = machine.isa});
  Record record;
  record.recipe = recipe;
  record.start_seconds = start.seconds();
  record.parameters = parameter_count(trainer.spec());
  Meter meter(energy);
  while (record.steps < train.steps && !record.is_reached) {
    const int64_t to = std::min(record.steps + what.every, train.steps);
    meter.run([&] {
      for (; record.steps < to; ++record.steps) {
        const StepReport report = trainer.step();
        record.tokens = report.tokens;
        record.planned_bytes = report.mem_bytes;
      }
    });
    const std::optional<double> loss = trainer.evaluate();
    if (!loss)
      throw Error(ErrorCode::invalid_argument,
                  "[bench record] data.val: expected validation text, got none");
    record.loss = *loss;
    record.is_reached = *loss <= what.loss;
    machine.log.info("bench: {}: step {}/{}  validation loss {:.4f}  {:.1f} s", recipe,
                     record.steps, train.steps, *loss, meter.seconds());
  }
  record.seconds = meter.seconds();
  record.joules = meter.joules();
  return record;
}

}  // namespace

void bench_records(const BenchMachine& machine, const RecordCase& what,
                   const std::function<void(const Record&)>& on_record) {
  EnergyCounter energy(machine.is_gpu() ? Energy::gpu : Energy::processors);
  for (const std::string& recipe : what.recipes) on_record(measure(machine, what, energy, recipe));
}

}  // namespace octet
