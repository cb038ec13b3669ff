#include "bench/rank_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace octet {
namespace {

struct StepTimes {
  double ms = 0;           // of a step
  double transfer_ms = 0;  // of its collectives
  double hidden_ms = 0;    // of those, beside what computes
};

// Steps of one stream follow each other.
double overlap_us(const Profile& profile, const ProfileEvent& transfer) {
  double total = 0;
  for (const ProfileEvent& event : profile.events()) {
    if (event.step().stream != Stream::compute) continue;
    const double begin = std::max(event.begin_us, transfer.begin_us);
    total += std::max(0.0, std::min(event.end_us, transfer.end_us) - begin);
  }
  return total;
}

StepTimes measure(StepRunner& runner, Device* device, int rounds) {
  constexpr int kWarmUp = 2;
  for (int i = 0; i < kWarmUp; ++i) runner.step_ms();
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(runner.step_ms());
  Profile profile(device);
  runner.step_ms(&profile);
  StepTimes result{.ms = median(times)};
  for (const ProfileEvent& event : profile.events()) {
    if (event.step().stream == Stream::compute) continue;
    result.transfer_ms += event.ms();
    result.hidden_ms += overlap_us(profile, event) / 1000;
  }
  return result;
}

// A step whose gradients do not arrive is faster than one that learns.
void expect_learned(const std::string& recipe, const StepRunner& runner) {
  const float first = runner.first().loss, last = runner.last().loss;
  if (last < first && runner.last().grad_norm > 0) return;
  throw Error(ErrorCode::numerics,
              "[bench step] {}: expected a loss below {} after {} steps, got {} with |g| {}: its "
              "speed is not recorded",
              recipe, first, runner.n_steps(), last, runner.last().grad_norm);
}

}  // namespace

BenchRows bench_rank_steps(const BenchMachine& machine, Group& group, const RecipeRounds& rounds) {
  BenchRows rows;
  for (const std::string& recipe : rounds.recipes) {
    if (group.rank() == 0) machine.log.info("bench: recipe {}", recipe);
    StepRunner runner(rounds.config(recipe), rounds.documents, machine, &group);
    const std::vector<StepTimes> ranks =
        gather_value(&group, measure(runner, machine.backend.device.get(), rounds.rounds));
    const std::string shape = fmt::format("{} ranks, {}", group.size(), runner.shape_text());
    const auto add = [&](const std::string& what, double value, std::string unit) -> BenchRow& {
      rows.push_back(machine.row(fmt::format("step {}{}", recipe, what), shape));
      rows.back().value = value;
      rows.back().unit = std::move(unit);
      return rows.back();
    };
    expect_learned(recipe, runner);
    const double slowest = std::ranges::max_element(ranks, {}, &StepTimes::ms)->ms;
    add("", static_cast<double>(runner.tokens() * group.size()) / (slowest / 1000), "tokens/s");
    add(" first loss", static_cast<double>(runner.first().loss), "nats");
    add(" loss", static_cast<double>(runner.last().loss), "nats");
    add(" |g|", static_cast<double>(runner.last().grad_norm), "of the last step");
    for (size_t r = 0; r < ranks.size(); ++r) {
      add(fmt::format(" rank {}", r), ranks[r].ms, "ms");
      BenchRow& row = add(fmt::format(" rank {} transfers", r), ranks[r].transfer_ms, "ms");
      if (ranks[r].transfer_ms > 0) row.share = ranks[r].hidden_ms / ranks[r].transfer_ms;
    }
  }
  return rows;
}

}  // namespace octet
