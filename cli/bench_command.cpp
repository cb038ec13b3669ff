#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "bench/ceilings_file.h"
#include "bench/codec_bench.h"
#include "bench/decode_bench.h"
#include "bench/kernels_bench.h"
#include "bench/layer_bench.h"
#include "bench/optimizer_bench.h"
#include "bench/rank_links.h"
#include "bench/rank_steps.h"
#include "bench/scaling_bench.h"
#include "bench/step_bench.h"
#include "cli/backend.h"
#include "cli/bench_flags.h"
#include "cli/bench_load.h"
#include "cli/bench_record.h"
#include "cli/launched_ranks.h"
#include "cli/recipe_files.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "passes/precision/recipe.h"
#include "train/run_setup.h"

namespace octet {
namespace {

// recipes/llama-25m.yaml's model.
constexpr const char* kModel25M =
    "model: {kind: llama, hidden: 512, layers: 8, heads: 8, ffn: 1408, vocab: 256, seq: 256}\n"
    "train: {batch: 8}\n";

// File for ceilings of GPUs, unless --ceilings names one; empty where nobody has a home.
std::string default_ceilings_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != 0) return join_path(cache, "octet/ceilings.json");
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == 0 ? "" : join_path(home, ".cache/octet/ceilings.json");
}

// Throws for a recipe that is not known.
std::vector<std::string> recipe_names(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream words(list);
  for (std::string name; std::getline(words, name, ',');)
    names.emplace_back(find_recipe(name).name);
  return names;
}

class BenchRun {
 public:
  BenchRun(const BenchFlags& flags, const GlobalOptions& options, Group* group = nullptr)
      : flags_(flags),
        options_(options),
        group_(group),
        recipes_(recipe_names(flags.recipes)),
        backend_(open_backend(options, needs(), group)),
        machine_{backend_, kernels_name(options), make_log(options), 2 + 2 * flags.rounds} {}

  BenchRows rows() {
    find_ceilings();
    BenchRows all;
    const auto add = [&](const BenchRows& rows) {
      all.insert(all.end(), rows.begin(), rows.end());
    };
    if (wants("kernels")) add(kernels());
    if (wants("step")) {
      if (!all.empty() && !are_kept_) raise_ceilings();
      const auto kernel_rows = flags_.by_kernel ? KernelRows::yes : KernelRows::no;
      add(bench_steps(machine_, rounds({}), ceilings_, kernel_rows));
    }
    if (flags_.what == "decode" || flags_.what == "prefill") add(generation());
    if (flags_.what == "layer") add(bench_layers(machine_, rounds({"model.layers=1"}), ceilings_));
    if (flags_.what == "scaling") add(scaling());
    if (wants("optimizer")) {
      machine_.log.info("bench: optimizer");
      add(bench_optimizer(machine_, flags_.params));
    }
    BenchRows rows = ceiling_rows(machine_, ceilings_);
    rows.insert(rows.end(), all.begin(), all.end());
    return rows;
  }

  void join() { join_devices(backend_, *group_, options_); }
  // Rows of steps that all ranks of the group take together.
  BenchRows rank_rows() { return bench_rank_steps(machine_, *group_, rounds({})); }
  BenchRows link_rows(const std::string& over) {
    LinkSizes sizes{.rounds = flags_.rounds};
    if (machine_.is_gpu()) sizes.most = int64_t{256} << 20;
    if (flags_.largest > 0) sizes.most = flags_.largest << 20;
    const LinkRows links = bench_links(machine_, *group_, over, sizes);
    if (links.self_test.n_kernels > 0)
      machine_.log.info("[ranks] self-test: {} kernels right in {:.0f} ms",
                        links.self_test.n_kernels, links.self_test.ms);
    return links.rows;
  }

 private:
  // Takes ceilings that a file keeps of this device; else they are measured, and kept there.
  void find_ceilings() {
    const bool has_default = flags_.ceilings.empty() && machine_.is_gpu();
    const std::string path = has_default ? default_ceilings_file() : flags_.ceilings;
    if (path.empty()) return raise_ceilings();
    const std::string device = backend_.device->info().name;
    const std::optional<Ceilings> kept = read_ceilings(posix_files(), path, device);
    if (kept) {
      machine_.log.info("bench: ceilings of {} as {} has them", device, path);
      ceilings_ = *kept;
    } else {
      raise_ceilings();
      write_ceilings(posix_files(), path, device, ceilings_);
      machine_.log.info("bench: ceilings of {} kept in {}", device, path);
    }
    are_kept_ = true;
  }

  // To the best seen so far: other programs may have slowed down the first measurement.
  void raise_ceilings() {
    machine_.log.info("bench: ceilings");
    const Ceilings now = measure_ceilings(machine_);
    const auto raise = [](double& best, double rate) { best = std::max(best, rate); };
    raise(ceilings_.bytes_per_s, now.bytes_per_s);
    raise(ceilings_.f32_flops_per_s, now.f32_flops_per_s);
    raise(ceilings_.narrow_flops_per_s, now.narrow_flops_per_s);
    raise(ceilings_.code_flops_per_s, now.code_flops_per_s);
  }

  bool wants(const char* what) const { return flags_.what == what || flags_.what.empty(); }

  // Decoding with the kernels of `octet generate`.
  KernelNeeds needs() const {
    const TrainConfig train = config(recipes_.empty() ? "bf16" : recipes_.front(), {}).train;
    return {.deterministic = train.deterministic,
            .same_rows = flags_.what == "decode" || flags_.what == "prefill",
            .device_index = flags_.device_index,
            .arithmetic = train.arithmetic};
  }

  // `first` comes before the user's own settings.
  RunConfig config(const std::string& recipe, std::vector<std::string> first) const {
    if (flags_.documents > 0) first.emplace_back("data.document_boundaries=isolate");
    for (const std::string& set : options_.config_sets()) first.push_back(set);
    if (group_ != nullptr) first.push_back(fmt::format("parallel.ranks={}", group_->size()));
    first.push_back("recipe.base=" + recipe);
    return flags_.config.empty() ? parse_config(kModel25M, "the 25 M model", first).config
                                 : load_config(config_path(flags_.config), first).config;
  }

  RecipeRounds rounds(const std::vector<std::string>& first) const {
    RecipeRounds result;
    result.config = [this, first](const std::string& recipe) { return config(recipe, first); };
    result.recipes = recipes_;
    result.documents = flags_.documents;
    result.rounds = flags_.rounds;
    if (!result.recipes.empty()) return result;
    for (const Recipe* recipe : all_recipes()) result.recipes.emplace_back(recipe->name);
    result.refusal = Refusal::is_left_out;
    return result;
  }

  BenchRows kernels() {
    machine_.log.info("bench: kernels");
    BenchRows all = machine_.is_gpu() ? BenchRows{} : bench_codec();
    const std::vector<std::string> recipes =
        recipes_.empty() ? std::vector<std::string>{"fp32", "bf16"} : recipes_;
    for (const std::string& recipe : recipes) {
      const RunConfig run = config(recipe, {});
      const ProgramOptions program = program_options(run, model_from_config(posix_files(), run));
      const BenchRows rows = bench_step_kernels(machine_, program, ceilings_);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  BenchRows scaling() {
    machine_.log.info("bench: scaling");
    const RunConfig run = config("coat", {});
    const ModelSpec spec = model_from_config(posix_files(), run);
    return bench_scaling(machine_, program_options(run, spec), spec, flags_.rounds, ceilings_);
  }

  BenchRows generation() {
    BenchRows all;
    for (const std::string& recipe :
         recipes_.empty() ? std::vector<std::string>{"bf16"} : recipes_) {
      const auto kernel_rows = flags_.by_kernel ? KernelRows::yes : KernelRows::no;
      const DecodeCase what{.spec = model_from_config(posix_files(), config(recipe, {})),
                            .recipe = recipe,
                            .weights = flags_.weights,
                            .texts = flags_.texts,
                            .context = flags_.context,
                            .rounds = flags_.rounds};
      const BenchRows rows = flags_.what == "decode"
                                 ? bench_decode(machine_, what, ceilings_, kernel_rows)
                                 : BenchRows{bench_prefill(machine_, what)};
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  const BenchFlags flags_;
  const GlobalOptions& options_;
  Group* group_;
  std::vector<std::string> recipes_;
  Backend backend_;
  BenchMachine machine_;
  Ceilings ceilings_;
  bool are_kept_ = false;  // in a file
};

std::string number(double value) {
  return fmt::format("{:.4g}", value);
}

Table bench_table(const BenchRows& rows) {
  Table table{
      {"name", "shape", "value", "unit", "baseline", "ratio", "floor", "share", "isa", "threads"},
      {}};
  for (const BenchRow& row : rows) {
    table.rows.push_back(cells(row.name, row.shape, number(row.value), row.unit, row.baseline,
                               number(row.ratio), number(row.floor), number(row.share), row.isa,
                               row.threads));
  }
  return table;
}

// Back ends are opened one at a time.
std::unique_ptr<BenchRun> open_in_turn(BenchFlags flags, const GlobalOptions& options,
                                       Group& group) {
  flags.device_index = find_hosts(group).local_rank;
  std::unique_ptr<BenchRun> run;
  for (int turn = 0; turn < group.size(); ++turn) {
    if (turn == group.rank()) run = std::make_unique<BenchRun>(flags, options, &group);
    gather_value(&group, turn);
  }
  run->join();
  return run;
}

// The first rank prints.
void run_between_ranks(BenchFlags flags, const GlobalOptions& options) {
  const bool is_links = flags.what == "links";
  if (flags.recipes.empty()) flags.recipes = "bf16,fp8_lm";
  run_bench_ranks(options, flags.ranks, flags.kind,
                  [&](Group& group, const GlobalOptions& of_rank, const std::string& over) {
                    const auto run = open_in_turn(flags, of_rank, group);
                    const BenchRows rows = is_links ? run->link_rows(over) : run->rank_rows();
                    if (group.rank() > 0) return;
                    print_table(of_rank, bench_table(rows));
                    if (is_links && !of_rank.json) write_out("verified\n");
                    finish_output();
                  });
}

void run_bench(const BenchFlags& flags, const GlobalOptions& options) {
  if (flags.what == "record") {
    const std::string recipes = flags.recipes.empty() ? "bf16,coat" : flags.recipes;
    return run_bench_record(
        {flags.config, recipe_names(recipes), flags.loss, flags.every, flags.csv}, options);
  }
  if (flags.what == "links" || flags.ranks > 0) return run_between_ranks(flags, options);
  const LoadFlags load{flags.config, recipe_names(flags.recipes), flags.rounds};
  print_table(options, bench_table(flags.what == "load" ? run_bench_load(load, options)
                                                        : BenchRun(flags, options).rows()));
  finish_output();
}

}  // namespace

void add_bench_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* bench = app.add_subcommand(
      "bench", "measure kernels, steps and the optimizer against this machine's ceilings");
  add_bench_flags(*bench, *flags);
  bench->callback([flags, bench, &options] {
    expect_bench_use(*bench, *flags);
    run_bench(*flags, options);
  });
}

}  // namespace octet
