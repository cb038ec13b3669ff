#include "cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "backends/cuda/params/ranks.h"
#include "base/error.h"
#include "base/files.h"
#include "base/units.h"
#include "cli/backend.h"
#include "cli/enum_option.h"
#include "cli/finetune_flags.h"
#include "config/load.h"
#include "infer/generation_sums.h"
#include "infer/model_source.h"
#include "infer/model_spec.h"
#include "ir/print.h"
#include "plan/kernel_row.h"
#include "plan/report.h"
#include "train/fitting_sets.h"
#include "train/open_run.h"
#include "train/plan_report.h"
#include "train/run_setup.h"

namespace octet {
namespace {

struct PlanFlags : FinetuneFlags {
  bool buffers = false;
  bool steps = false, offsets = false;
  bool graph = false;
  bool policy = false;
  bool passes = false;
  std::vector<std::string> without;
  std::optional<int64_t> device_memory;  // bytes
  std::optional<int64_t> ranks, texts;
  FrozenFormat weights = FrozenFormat::as_computed;
  GenerationSums sums = GenerationSums::by_rows;
  int64_t hosts = 1;
  double link = MachineRates{}.link / 1e9, network = MachineRates{}.network / 1e9;  // GB/s
};

constexpr int64_t kNcclBytes = int64_t{584} << 20;  // measured with two (docs/results/h100x2)

// Rates and levels as GPUs are connected (backends/cuda/target/ranks.cpp).
MachineRates rates_of(const PlanFlags& flags, const ParallelConfig& parallel, bool is_gpu) {
  const int64_t ranks = parallel.ranks;
  if (ranks % flags.hosts != 0)
    throw Error(ErrorCode::invalid_argument,
                "[plan] --hosts: expected a divisor of {} ranks, got {}", ranks, flags.hosts);
  MachineRates rates{.link = flags.link * 1e9, .network = flags.network * 1e9};
  const bool is_over_nccl = parallel.transport == RankTransport::nccl || ranks > cuda::kMaxRanks;
  if (is_gpu && ranks > 1 && (flags.hosts > 1 || is_over_nccl)) rates.nccl_bytes = kNcclBytes;
  if (flags.hosts == 1) return rates;
  rates.ranks_a_host = ranks / flags.hosts;
  rates.has_levels = is_gpu && rates.ranks_a_host > 1 && rates.ranks_a_host <= cuda::kMaxRanks &&
                     !parallel.strict && parallel.transport != RankTransport::nccl;
  return rates;
}

// Each pass of each function, in the order in which they ran.
void print_passes(const Program& program, const GlobalOptions& options) {
  Table table{{"graph", "pass", "nodes before", "nodes after", "ms"}, {}};
  for (const PassRecord& record : program.pass_log()) {
    table.rows.push_back(cells(record.graph, record.pass, record.nodes_before, record.nodes_after,
                               fmt::format("{:.2f}", record.time_ms)));
  }
  print_table(options, table);
}

// The row of this name, or all whose names begin with these words: "gemm fp8". Throws
// Error{invalid_argument} where the back end has none.
void strike(Catalogue& catalogue, const std::string& row) {
  std::vector<std::string> of_op, begin_so;
  for (const KernelRow* known : catalogue.target().rows) {
    const std::string key = row_key(*known);
    const std::string_view op = op_def(known->op).name;
    if (key == row) return catalogue.strike(row);
    if (row.starts_with(op)) of_op.push_back(key);
    if (key.starts_with(row + " ") && row.size() > op.size()) begin_so.push_back(key);
  }
  for (const std::string& key : begin_so) catalogue.strike(key);
  if (!begin_so.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "[plan] --without: expected an op and one of its rows ({}), got '{}'",
              of_op.empty() ? "rope rows" : fmt::format("{}", fmt::join(of_op, ", ")), row);
}

// How the GEMMs of generation add, texts side by side.
void print_generation(const PlanFlags& flags, const RunConfig& config, const ModelSpec& spec,
                      Catalogue& catalogue, const GlobalOptions& options) {
  Precision precision(config.recipe.base, {}, flags.weights);
  precision.recipe_options = program_options(config, spec).recipe_options;
  const GeneratingModel model{spec, precision};
  TextModelOptions wanted{.n_entries = flags.texts.value_or(1),
                          .capacity = config.model.seq,
                          .picks = options.device != "cpu"};
  choose_sums(flags.sums, model, wanted, catalogue);
  Table table{{"function", "texts", "tokens", "rows", "kernel", "sums", "gemms"}, {}};
  for (const GenerationGemms& gemms : generation_gemms(model, wanted, catalogue)) {
    const BatchSize& size = gemms.function.size;
    table.rows.push_back(cells(gemms.function.name, size.batch, size.seq, gemms.n_rows(),
                               gemms.kernel, sums_of_row(gemms.row), gemms.count));
  }
  print_table(options, table);
}

KernelNeeds needs_of(const RunConfig& config) {
  return {.deterministic = config.train.deterministic,
          .arithmetic = config.train.arithmetic,
          .ranks = static_cast<int>(config.parallel.ranks)};
}

// The configuration, with the rows that its data ask for where --data names some.
RunConfig planned_config(const FinetuneFlags& flags, const std::vector<std::string>& sets,
                         const GlobalOptions& options) {
  LoadedConfig loaded = configuration_of(flags, sets, NeedsData::no, make_log(options));
  if (flags.finetune.data.empty()) return loaded.config;
  take_tokenizer_of_model(posix_files(), loaded);
  const OpenRunOptions open{
      .data = {.log = make_log(options), .threads = options.threads, .keeps_tokens = false},
      .fits_to_data = true};
  return open_run(posix_files(), std::move(loaded), open).loaded.config;
}

// Prints the settings that fit a GPU of so much memory.
void print_fitting_sets(const PlanFlags& flags, const GlobalOptions& options) {
  std::vector<std::string> own = sets_with_flags(flags, options.config_sets());
  FinetuneFlags without_keys = flags;  // a flag and a setting of one key would be refused
  for (KeyFlag& key : without_keys.keys) key.value.clear();
  const std::string recipe = std::exchange(without_keys.finetune.recipe, "");
  if (!recipe.empty() && flags.config.empty()) own.push_back("recipe.base=" + recipe);
  const auto config_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> sets = own;
    sets.insert(sets.end(), more.begin(), more.end());
    return configuration_of(without_keys, sets, NeedsData::no).config;
  };
  const RunConfig run = config_with({});
  if (run.parallel.ranks > 1) {
    throw Error(ErrorCode::invalid_argument,
                "[plan] --device-memory: expected parallel.ranks 1, as speeds are predicted of one "
                "GPU, got {}",
                run.parallel.ranks);
  }
  GlobalOptions of_gpu = options;
  of_gpu.device = "cuda";
  const Backend backend = open_plan_backend(of_gpu, needs_of(run));
  const CardRates& card = measured_card();
  const FittingSets found =
      fitting_sets(posix_files(), config_with, *backend.catalogue, card, *flags.device_memory);
  if (found.sets.empty())
    throw Error(ErrorCode::device,
                "[plan] --device-memory: none of {} plans fits {}; more GPUs (parallel.ranks) or a "
                "smaller model.seq may",
                found.n_planned, bytes_text(static_cast<double>(*flags.device_memory)));
  Table table{{"memory", "tokens/s", "settings"}, {}};
  for (const FittingSet& set : found.sets) {
    table.rows.push_back(cells(
        options.json ? fmt::to_string(set.planned_bytes)
                     : fmt::format("{:.1f} GiB",
                                   static_cast<double>(set.planned_bytes) / (int64_t{1} << 30)),
        fmt::format("{:.0f}", set.tokens_per_s),
        set.sets.empty() ? "(as it is)" : fmt::format("{}", fmt::join(set.sets, " "))));
  }
  print_table(options, table);
  if (!options.json) {
    write_out(fmt::format("{} plans; speeds are predicted, of an {} (docs/what_fits.md)\n",
                          found.n_planned, card.name));
  }
  finish_output();
}

// At most one view is shown instead of a plan.
void expect_one_view(const CLI::App& plan) {
  std::string first;
  for (const char* view : {"--policy", "--texts", "--passes", "--steps", "--graph", "--buffers"}) {
    if (plan.count(view) == 0) continue;
    if (!first.empty()) {
      throw Error(ErrorCode::invalid_argument, "[plan] expected one of {} and {}, got both", first,
                  view);
    }
    first = view;
  }
}

void run_plan(const PlanFlags& flags, const CLI::App& command, const GlobalOptions& options) {
  expect_one_view(command);
  expect_flags_read(command, {{"--offsets", flags.steps, "--steps"},
                              {"--json", !flags.policy, "another view than --policy, a text"},
                              {"--device", !flags.device_memory || options.device == "cuda",
                               "cuda beside --device-memory, which is a GPU's"}});
  if (flags.device_memory) return print_fitting_sets(flags, options);
  std::vector<std::string> sets = options.config_sets();
  if (flags.ranks) {
    expect_no_set(fmt::format("--ranks {}", *flags.ranks), "parallel.ranks", sets);
    sets.push_back(fmt::format("parallel.ranks={}", *flags.ranks));
  }
  const RunConfig config = planned_config(flags, sets, options);
  Backend backend = open_plan_backend(options, needs_of(config));
  for (const std::string& row : flags.without) strike(*backend.catalogue, row);
  const bool has_ranks = config.parallel.ranks > 1;
  expect_flags_read(command, {{"--hosts", has_ranks, "ranks"},
                              {"--link", has_ranks, "ranks"},
                              {"--network", flags.hosts > 1, "several hosts"}});
  const ModelSpec spec = model_from_config(posix_files(), config);
  if (flags.policy) {
    const ProgramOptions program_opts = program_options(config, spec);
    const Graph forward = program_opts.forward(program_opts.train, ForwardKind::loss);
    write_out(
        resolved_table(find_recipe(program_opts.recipe), forward, program_opts.recipe_options));
    return finish_output();
  }
  if (flags.texts) return print_generation(flags, config, spec, *backend.catalogue, options);
  const MachineRates rates = rates_of(flags, config.parallel, options.device == "cuda");
  const PlanReport report(posix_files(), config, spec, *backend.catalogue,
                          rates.has_levels ? rates.ranks_a_host : 0);
  if (flags.passes) return print_passes(report.program(), options);
  if (flags.steps) {
    write_out(program_text(report.largest(), flags.offsets ? Offsets::yes : Offsets::no));
  } else if (flags.graph) {
    write_out(print(report.largest().graph));
  } else if (options.json || flags.buffers) {
    OrderedJson json = report.json(flags.buffers ? WithBuffers::yes : WithBuffers::no);
    if (flags.ranks) report.transfers(rates).add_to(json);
    write_out(json_text(json));
  } else {
    write_out(report.text());
    if (config.parallel.ranks > 1) write_out(report.transfers(rates).text());
  }
  finish_output();
}

// The others tell of one plan, or of several GPUs.
void add_device_memory(CLI::App& plan, PlanFlags& flags) {
  CLI::Option* memory =
      plan.add_option("--device-memory", flags.device_memory,
                      "settings that fit a GPU of so much memory (24GiB), with what they take and "
                      "how fast they would be; needs none")
          ->type_name("BYTES")
          ->transform(CLI::AsSizeValue(true))
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 60));
  for (const char* other :
       {"--buffers", "--steps", "--offsets", "--graph", "--policy", "--passes", "--without",
        "--ranks", "--hosts", "--network", "--link", "--texts", "--data"})
    memory->excludes(plan.get_option(other));
}

}  // namespace

void add_plan_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* plan = app.add_subcommand(
      "plan", "print what a run will do and the memory it takes, without running it");
  add_finetune_flags(*plan, *flags, NeedsData::no);
  plan->add_flag("--buffers", flags->buffers,
                 "JSON with every buffer: name, role, layer, dtype, offset, bytes, steps");
  plan->add_flag("--steps", flags->steps, "the straight-line program as text");
  plan->add_flag("--offsets", flags->offsets, "with --steps: where each result lies in memory");
  plan->add_flag("--graph", flags->graph, "the lowered graph as text; `octet opt` reads it");
  plan->add_flag("--policy", flags->policy, "the formats of every linear after overrides");
  plan->add_flag("--passes", flags->passes,
                 "what each compiler pass did: nodes before and after, milliseconds");
  plan->add_option("--without", flags->without,
                   "a row of kernels to do without, by op and row: \"rms_norm codes\"; may be "
                   "repeated")
      ->type_name("ROW")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  plan->add_option("--ranks", flags->ranks,
                   "devices that train together (parallel.ranks): what each holds, what travels, "
                   "and how much of that computing hides; needs none of them")
      ->type_name("N")
      ->check(as_key("parallel.ranks"));
  plan->add_option("--hosts", flags->hosts, "hosts that the ranks are on, as many on each")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
  plan->add_option("--network", flags->network,
                   "speed of the network between hosts, of each rank and in each direction")
      ->type_name("GB/s")
      ->check(CLI::Range(1e-3, 1e6));
  plan->add_option("--link", flags->link,
                   "speed of the links between ranks of a host, in each direction")
      ->type_name("GB/s")
      ->check(CLI::Range(1e-3, 1e6));
  const auto texts =
      plan->add_option("--texts", flags->texts,
                       "of generation instead, so many texts side by side: which kernels the GEMMs "
                       "of its functions have, and how they add (docs/generation.md)")
          ->type_name("N")
          ->check(CLI::Range(1, 4096));
  add_enum_option(*plan, "--weights", flags->weights,
                  "with --texts: what the layers' matrices are kept as")
      ->needs(texts);
  add_enum_option(*plan, "--sums", flags->sums, "with --texts: as `octet generate` takes it")
      ->needs(texts);
  add_device_memory(*plan, *flags);
  plan->callback([flags, plan, &options] { run_plan(*flags, *plan, options); });
}

}  // namespace octet
