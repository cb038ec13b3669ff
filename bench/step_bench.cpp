#include "bench/step_bench.h"

#include <fmt/format.h>

#include <optional>

#include "device/energy.h"
#include "train/stopwatch.h"

namespace octet {
namespace {

class StepRows {
 public:
  StepRows(const BenchMachine& machine, const RecipePair& pair, const Ceilings& ceilings)
      : machine_(machine), pair_(pair), ceilings_(ceilings) {}

  BenchRows measure(int rounds, KernelRows kernel_rows) {
    times_ = alternate(pair_, rounds, [](StepRunner& one) { return one.step_ms(); });
    Profile profile(machine_.backend.device.get());
    pair_.runner.step_ms(&profile);
    const std::vector<ProfileRow> kernels = rows_by_kernel(profile, ceilings_);
    BenchRows rows = {speed(), work(), time(kernels), reference(profile), memory()};
    for (const std::optional<BenchRow>& row : {device_memory(), energy()}) {
      if (row) rows.push_back(*row);
    }
    if (kernel_rows == KernelRows::no) return rows;
    for (const ProfileRow& kernel : kernels) {
      rows.push_back(row(": " + kernel.kernel));
      rows.back().shape = fmt::format("{} launches", kernel.count);
      set_time(rows.back(), kernel.ms, kernel.floor_ms);
    }
    return rows;
  }

 private:
  BenchRow row(const std::string& what) const {
    return machine_.row("step " + pair_.recipe + what, pair_.runner.shape_text());
  }
  BenchRow speed() const {
    BenchRow result = row("");
    result.value = static_cast<double>(pair_.runner.tokens()) / (times_.ms / 1000);
    result.unit = "tokens/s";
    set_ratio(result, times_);
    return result;
  }
  BenchRow work() const {
    BenchRow result = row(" work");
    result.value = pair_.runner.model_flops() / (times_.ms * 1e6);
    result.unit = "GFLOP/s of useful work";
    result.share = result.value * 1e9 / pair_.runner.gemm_rate(ceilings_);
    return result;
  }
  BenchRow time(const std::vector<ProfileRow>& kernels) const {
    double floor_ms = 0;
    for (const ProfileRow& kernel : kernels) floor_ms += kernel.floor_ms;
    BenchRow result = row(" time");
    set_time(result, times_.ms, floor_ms);
    return result;
  }
  BenchRow reference(const Profile& profile) const {
    BenchRow result = row(" reference");
    result.value = 100 * reference_share(profile);
    result.unit = "% of the time in reference kernels";
    return result;
  }

  BenchRow memory() const {
    BenchRow result = row(" planned");
    result.value = static_cast<double>(pair_.runner.planned_bytes()) / (1 << 30);
    result.unit = "GiB";
    return result;
  }
  // Memory as the device's driver counts, other programs included, without the baseline's run
  // beside this one; nothing where nobody counts.
  std::optional<BenchRow> device_memory() const {
    int64_t used = machine_.backend.device->used_bytes();
    if (used < 0) return std::nullopt;
    if (&pair_.baseline != &pair_.runner) used -= pair_.baseline.planned_bytes();
    BenchRow result = row(" in use");
    result.value = static_cast<double>(used) / (1 << 30);
    result.unit = "GiB";
    result.floor = static_cast<double>(pair_.runner.planned_bytes()) / (1 << 30);
    return result;
  }

  // Energy of steps without a pause: counters are renewed ten times a second or so.
  std::optional<BenchRow> energy() const {
    constexpr double kSeconds = 2;
    EnergyCounter counter(machine_.is_gpu() ? Energy::gpu : Energy::processors);
    if (!counter.joules()) return std::nullopt;  // without a counter no more steps
    const Stopwatch watch;
    int64_t n_steps = 0;
    for (; watch.seconds() < kSeconds; ++n_steps) pair_.runner.step_ms();
    const std::optional<double> joules = counter.take();
    if (!joules || *joules <= 0) return std::nullopt;
    BenchRow result = row(" energy");
    result.value = static_cast<double>(pair_.runner.tokens() * n_steps) / *joules;
    result.unit = "tokens/J";
    return result;
  }

  const BenchMachine& machine_;
  const RecipePair& pair_;
  const Ceilings& ceilings_;
  RoundTimes times_;
};

}  // namespace

BenchRows bench_steps(const BenchMachine& machine, const RecipeRounds& rounds,
                      const Ceilings& ceilings, KernelRows kernel_rows) {
  BenchRows all;
  for_recipes(machine, rounds, [&](const RecipePair& pair) {
    const BenchRows rows = StepRows(machine, pair, ceilings).measure(rounds.rounds, kernel_rows);
    all.insert(all.end(), rows.begin(), rows.end());
  });
  return all;
}

}  // namespace octet
