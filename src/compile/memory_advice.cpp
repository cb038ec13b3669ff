#include "compile/memory_advice.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "compile/program.h"
#include "passes/lower/chunk_head.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

constexpr size_t kMaxSettings = 3;

// "21.7GiB", which configurations read; at most so many bytes.
std::string budget_text(int64_t n_bytes) {
  constexpr std::pair<const char*, int> kUnits[] = {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  for (const auto& [unit, log2] : kUnits) {
    const double n = std::ldexp(static_cast<double>(n_bytes), -log2);
    if (n >= 1) return fmt::format("{:.1f}{}", std::floor(n * 10) / 10, unit);
  }
  return fmt::to_string(n_bytes);
}

// The fewest bytes that budget_text() says.
int64_t budget_floor(int64_t n_bytes) {
  for (const int log2 : {30, 20, 10}) {
    const double n = std::ldexp(static_cast<double>(n_bytes), -log2);
    if (n >= 1) return static_cast<int64_t>(std::ldexp(std::floor(n * 10) / 10, log2));
  }
  return n_bytes;
}

// A setting that takes less memory.
struct Setting {
  std::string keys;
  std::function<void(ProgramOptions&)> apply;
};

class Advisor {
 public:
  Advisor(const ProgramOptions& options, const Catalogue& catalogue, int64_t limit_bytes)
      : options_(options), catalogue_(catalogue), limit_bytes_(limit_bytes) {
    if (has_budget()) recompute_all(options_);
  }

  std::vector<std::string> advice() {
    const std::vector<Setting> settings = single_settings();
    try_batch("", options_);
    for (const Setting& setting : settings) try_settings({setting});
    if (found_.empty()) try_together(settings);
    if (found_.size() < kMaxSettings) try_adapters(settings);
    if (found_.empty()) try_ranks(settings);
    if (found_.size() > kMaxSettings) found_.resize(kMaxSettings);
    return std::move(found_);
  }

 private:
  std::vector<Setting> single_settings() const {
    std::vector<Setting> list;
    if (!options_.recompute) {
      list.push_back({"train.memory_budget=" + budget_text(limit_bytes_), recompute_all});
    } else if (*options_.recompute != Recompute::full) {
      list.push_back(
          {"train.recompute=full", [](ProgramOptions& o) { o.recompute = Recompute::full; }});
    }
    const OptimPolicy& optim = options_.optim;
    if (!is_quantized(optim.state_m.dtype) || !is_quantized(optim.state_v.dtype)) {
      list.push_back({"optim.state_m=e4m3+x optim.state_v=e4m3+x", [](ProgramOptions& o) {
                        o.optim.state_m = o.optim.state_v = state_format_from_name("e4m3+x");
                      }});
    }
    const bool has_masters = optim.master == Master::fp32 || optim.master == Master::bf16_remainder;
    if (has_masters && compute() == Dtype::bf16) {
      list.push_back(
          {"optim.master=bf16_sr", [](ProgramOptions& o) { o.optim.master = Master::bf16_sr; }});
    }
    if (optim.clipping != Clipping::none && options_.accumulate == 1 && !options_.loss_scale) {
      list.push_back(
          {"optim.clip=0", [](ProgramOptions& o) { o.optim.clipping = Clipping::none; }});
    }
    return list;
  }

  // A run with a budget recomputes what it must, whatever else changes.
  bool has_budget() const { return options_.memory_budget > 0 && !options_.recompute; }
  static void recompute_all(ProgramOptions& options) {
    options.recompute = Recompute::full;
    options.head_chunk_bytes = ChunkHeadOptions{}.chunk_bytes;
  }

  Dtype compute() const {
    return options_.recipe_options.compute.value_or(find_recipe(options_.recipe).compute);
  }

  // nullopt where there is no such plan.
  std::optional<int64_t> planned(const ProgramOptions& options) const {
    try {
      return Program(options, catalogue_).planned_bytes();
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // Bytes that the options take, where they fit. A budget holds for what its text says.
  std::optional<int64_t> fitting(const ProgramOptions& options, const std::string& keys) const {
    const auto bytes = planned(options);
    const bool has_budget = keys.find("train.memory_budget=") != keys.npos;
    const int64_t limit = has_budget ? budget_floor(limit_bytes_) : limit_bytes_;
    return bytes && *bytes <= limit ? bytes : std::nullopt;
  }

  void add(const std::string& keys, int64_t n_bytes) {
    found_.push_back(fmt::format("{} ({})", keys, bytes_text(static_cast<double>(n_bytes))));
  }

  // The run's options with all of them, in their order.
  struct Changed {
    ProgramOptions options;
    std::string keys;
  };
  Changed changed(const std::vector<Setting>& settings) const {
    Changed all{options_, ""};
    for (const Setting& setting : settings) {
      setting.apply(all.options);
      all.keys += (all.keys.empty() ? "" : " ") + setting.keys;
    }
    return all;
  }

  bool try_settings(const std::vector<Setting>& settings) {
    const Changed all = changed(settings);
    const auto bytes = fitting(all.options, all.keys);
    if (bytes) add(all.keys, *bytes);
    return bytes.has_value();
  }

  // The largest batch below the run's. One sequence is asked first: where memory is short, each
  // plan may take seconds.
  bool try_batch(const std::string& keys, ProgramOptions options) {
    options.batches.clear();  // they follow train's, and hold no more tokens
    int64_t fits = 1, too_large = std::exchange(options.train.batch, fits);
    auto bytes = too_large > 1 ? fitting(options, keys) : std::nullopt;
    if (!bytes) return false;
    while (too_large - fits > 1) {
      options.train.batch = fits + (too_large - fits) / 2;
      const auto more = fitting(options, keys);
      (more ? fits : too_large) = options.train.batch;
      if (more) bytes = more;
    }
    add(fmt::format("train.batch={}{}{}", fits, keys.empty() ? "" : " ", keys), *bytes);
    return true;
  }

  // The fewest of them that fit, in their order; else a smaller batch with all.
  bool try_together(const std::vector<Setting>& settings) {
    for (size_t n = 2; n <= settings.size(); ++n) {
      if (try_settings({settings.begin(), settings.begin() + static_cast<int64_t>(n)})) return true;
    }
    const Changed all = changed(settings);
    return !settings.empty() && try_batch(all.keys, all.options);
  }

  bool try_adapters(const std::vector<Setting>& settings) {
    const bool may_adapt = options_.loads_model && options_.lora.rank == 0 &&
                           options_.freeze.empty() && !options_.inference_only;
    if (!may_adapt) return false;
    const Setting adapters = {"lora.rank=16 lora.base=e4m3", [](ProgramOptions& o) {
                                o.lora.rank = 16;
                                o.recipe_options.frozen = FrozenFormat::e4m3;
                              }};
    if (try_settings({adapters})) return true;
    std::vector<Setting> some = {adapters};
    if (!settings.empty() && !options_.recompute) some.push_back(settings.front());
    const Changed all = changed(some);
    return try_batch(all.keys, all.options);
  }

  // The fewest ranks that fit, with as few other settings as need be.
  bool try_ranks(const std::vector<Setting>& settings) {
    if (options_.parallel.ranks > 1) return false;
    const Setting shards = {"parallel.shard=parameters", [](ProgramOptions& o) {
                              o.parallel.shard = ShardStage::parameters;
                              o.recipe_options.weight_copy = WeightCopy::per_use;
                            }};
    for (const int64_t ranks : {2, 4, 8, 16, 32, 64}) {
      std::vector<Setting> all = {{fmt::format("parallel.ranks={}", ranks), [ranks](auto& o) {
                                     o.parallel.ranks = ranks;
                                     if (o.parallel.reduce == ReduceFormat::f32)
                                       o.recipe_options.gradient = Dtype::f32;
                                   }}};
      if (try_settings(all) || try_settings({all[0], shards})) return true;
      all.insert(all.end(), settings.begin(), settings.end());
      if (all.size() > 1 && try_settings(all)) return true;
    }
    return false;
  }

  ProgramOptions options_;
  const Catalogue& catalogue_;
  int64_t limit_bytes_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> fitting_settings(const ProgramOptions& options, const Catalogue& catalogue,
                                          int64_t limit_bytes) {
  if (limit_bytes <= 0) return {};
  return Advisor(options, catalogue, limit_bytes).advice();
}

}  // namespace octet
