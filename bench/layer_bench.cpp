#include "bench/layer_bench.h"

#include "plan/report.h"

namespace octet {
namespace {

constexpr int kLayer = 0;

struct Part {
  double ms = 0, floor_ms = 0;
};

// One step's launches of the layer.
struct LayerTimes {
  Part forward, backward;
  double kept_bytes = 0;
  double ms() const { return forward.ms + backward.ms; }
};

LayerTimes layer_times(const Profile& profile, const Ceilings& ceilings) {
  LayerTimes times;
  for (const ProfileEvent& event : profile.events()) {
    const Node& node = event.node();
    if (node.tag.layer != kLayer || node.tag.role == Role::update) continue;
    Part& part = node.tag.role == Role::forward ? times.forward : times.backward;
    part.ms += event.ms();
    part.floor_ms += 1000 * floor_seconds(event.plan->graph, node, ceilings);
  }
  const std::vector<int64_t> kept = kept_per_layer(profile.runs().front().plan->graph);
  times.kept_bytes = static_cast<double>(kept.at(kLayer));
  return times;
}

class LayerRows {
 public:
  LayerRows(const BenchMachine& machine, const RecipePair& pair, const Ceilings& ceilings)
      : machine_(machine), pair_(pair), ceilings_(ceilings) {}

  BenchRows measure(int rounds) {
    const RoundTimes times = alternate(pair_, rounds, [&](StepRunner& one) { return step(one); });
    std::vector<double> forward, backward;
    for (const LayerTimes& layer : seen_) {
      forward.push_back(layer.forward.ms);
      backward.push_back(layer.backward.ms);
    }
    const LayerTimes& last = seen_.back();
    BenchRows rows = {row(" forward"), row(" backward"), row(""), row(" kept")};
    set_time(rows[0], median(forward), last.forward.floor_ms);
    set_time(rows[1], median(backward), last.backward.floor_ms);
    set_time(rows[2], times.ms, last.forward.floor_ms + last.backward.floor_ms);
    set_ratio(rows[2], times);
    rows[3].value = last.kept_bytes / (1 << 20);
    rows[3].unit = "MiB";
    rows[3].baseline = kBaselineRecipe;
    rows[3].ratio = baseline_kept_ / last.kept_bytes;
    return rows;
  }

 private:
  BenchRow row(const std::string& what) const {
    return machine_.row("layer " + pair_.recipe + what, pair_.runner.shape_text());
  }
  double step(StepRunner& runner) {
    Profile profile(machine_.backend.device.get());
    runner.step_ms(&profile);
    const LayerTimes times = layer_times(profile, ceilings_);
    if (&runner == &pair_.runner) seen_.push_back(times);
    if (&runner == &pair_.baseline) baseline_kept_ = times.kept_bytes;
    return times.ms();
  }

  const BenchMachine& machine_;
  const RecipePair& pair_;
  const Ceilings& ceilings_;
  std::vector<LayerTimes> seen_;
  double baseline_kept_ = 0;
};

}  // namespace

BenchRows bench_layers(const BenchMachine& machine, const RecipeRounds& rounds,
                       const Ceilings& ceilings) {
  BenchRows all;
  for_recipes(machine, rounds, [&](const RecipePair& pair) {
    const BenchRows rows = LayerRows(machine, pair, ceilings).measure(rounds.rounds);
    all.insert(all.end(), rows.begin(), rows.end());
  });
  return all;
}

}  // namespace octet
