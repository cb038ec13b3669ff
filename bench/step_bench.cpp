#include "bench/step_bench.h"

#include <fmt/format.h>

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
    rows.push_back(device_memory());
    if (rows.back().value < 0) rows.pop_back();
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
  // As the device's driver counts, other programs included; negative where nobody counts.
  BenchRow device_memory() const {
    BenchRow result = row(" in use");
    result.value = static_cast<double>(machine_.backend.device->used_bytes()) / (1 << 30);
    result.unit = "GiB";
    result.floor = static_cast<double>(pair_.runner.planned_bytes()) / (1 << 30);
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
