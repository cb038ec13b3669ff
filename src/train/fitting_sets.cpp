#include "train/fitting_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "compile/budget.h"
#include "infer/model_spec.h"
#include "train/run_setup.h"

namespace octet {
namespace {

using Settings = std::vector<std::string>;

Settings joined(const std::vector<Settings>& parts) {
  Settings all;
  for (const Settings& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The run's own first, which has no setting.
std::vector<Settings> recipe_choices(const RunConfig& run) {
  std::vector<Settings> choices = {{}};
  for (const std::string name : {"bf16", "coat", "coat-fast"}) {
    if (run.recipe.base != name) choices.push_back({"recipe.base=" + name});
  }
  return choices;
}

// Choices of states and masters, each smaller than the one before.
std::vector<Settings> state_choices() {
  const Settings states = {"optim.state_m=e4m3+x", "optim.state_v=e4m3+x"};
  const Settings no_masters = {"optim.master=bf16_sr"};
  const Settings no_gradients = {"optim.clip=0"};  // each is used as soon as it is there
  return {{},
          states,
          joined({states, no_masters}),
          no_masters,
          joined({states, no_masters, no_gradients})};
}

// Beside a model that is there.
std::vector<Settings> adapter_choices(const RunConfig& run) {
  if (run.model.path.empty() || run.lora.rank > 0) return {};
  return {{"lora.rank=16"}, {"lora.rank=16", "lora.base=e4m3"}};
}

class Search {
 public:
  Search(const Files& files, const ConfigWith& config_with, const Catalogue& catalogue,
         const CardRates& card, int64_t limit_bytes)
      : files_(files),
        config_with_(config_with),
        catalogue_(catalogue),
        card_(card),
        limit_bytes_(limit_bytes) {}

  FittingSets all() {
    const RunConfig run = config_with_({});
    program_options(run, model_from_config(files_, run));  // what is wrong with it is said
    for (const Settings& recipe : recipe_choices(run)) {
      for (const Settings& states : state_choices()) add_fastest(run, joined({recipe, states}));
      for (const Settings& adapters : adapter_choices(run))
        add_fastest(run, joined({recipe, adapters}));
    }
    std::ranges::stable_sort(found_.sets, [](const FittingSet& a, const FittingSet& b) {
      return a.tokens_per_s != b.tokens_per_s ? a.tokens_per_s > b.tokens_per_s
                                              : a.sets.size() < b.sets.size();
    });
    FittingSets kept;
    kept.n_planned = found_.n_planned;
    for (const FittingSet& set : found_.sets) {  // what is faster stands before it
      if (!is_beaten(set, kept.sets)) kept.sets.push_back(set);
    }
    return kept;
  }

 private:
  void add_fastest(const RunConfig& run, const Settings& settings) {
    constexpr int kBatches = 3;  // below the largest that fits, fewer layers are computed again
    int64_t most_parts = 1;
    while (run.train.batch % (2 * most_parts) == 0) most_parts *= 2;
    // The smallest first: what does not fit takes longest to find out.
    std::optional<FittingSet> fastest = fitting(run, settings, most_parts);
    if (!fastest) return;
    int n_fitting = 0;
    for (int64_t parts = 1; parts < most_parts && n_fitting < kBatches; parts *= 2) {
      const auto set = fitting(run, settings, parts);
      n_fitting += set ? 1 : 0;
      if (set && set->tokens_per_s > fastest->tokens_per_s) fastest = set;
    }
    found_.sets.push_back(*fastest);
  }

  // With micro-batches of so many parts of the run's.
  std::optional<FittingSet> fitting(const RunConfig& run, Settings settings, int64_t parts) {
    if (parts > 1) {
      settings.push_back(fmt::format("train.batch={}", run.train.batch / parts));
      settings.push_back(fmt::format("train.accumulate={}", run.train.accumulate * parts));
    }
    try {
      RunConfig config = config_with_(settings);
      config.train.memory_budget = limit_bytes_;
      const ModelSpec spec = model_from_config(files_, config);
      ++found_.n_planned;
      const auto program = nearest_to_budget(program_options(config, spec), catalogue_);
      const int64_t tokens =
          config.train.batch * row_tokens(spec, config.model.seq) * config.train.accumulate;
      FittingSet set{.sets = settings, .planned_bytes = program->planned_bytes()};
      if (set.planned_bytes > limit_bytes_) return std::nullopt;
      const bool is_planned_anew = program->options().recompute != config.train.recompute ||
                                   program->options().head_chunk_bytes > 0;
      if (is_planned_anew)
        set.sets.push_back(fmt::format("train.memory_budget={}MiB", limit_bytes_ >> 20));
      set.tokens_per_s = static_cast<double>(tokens) / predicted_seconds(*program, card_);
      return set;
    } catch (const Error& error) {  // it has no plan, or there is no such run
      if (error.code() != ErrorCode::device && error.code() != ErrorCode::invalid_argument) throw;
      return std::nullopt;
    }
  }

  static bool is_beaten(const FittingSet& set, const std::vector<FittingSet>& faster) {
    return std::ranges::any_of(faster, [&set](const FittingSet& other) {
      return other.planned_bytes <= set.planned_bytes && other.sets.size() <= set.sets.size();
    });
  }

  const Files& files_;
  const ConfigWith& config_with_;
  const Catalogue& catalogue_;
  const CardRates& card_;
  int64_t limit_bytes_;
  FittingSets found_;
};

}  // namespace

FittingSets fitting_sets(const Files& files, const ConfigWith& config_with,
                         const Catalogue& catalogue, const CardRates& card, int64_t limit_bytes) {
  return Search(files, config_with, catalogue, card, limit_bytes).all();
}

}  // namespace octet
