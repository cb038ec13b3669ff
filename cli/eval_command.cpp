#include "cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/calib_option.h"
#include "cli/enum_option.h"
#include "cli/eval_recipe.h"
#include "cli/eval_tasks.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/row_figures.h"
#include "config/nearest.h"
#include "data/dataset.h"
#include "data/row_plan.h"
#include "infer/check_generation.h"
#include "infer/evaluate.h"
#include "infer/inference.h"
#include "infer/loaded_rms.h"
#include "infer/model_source.h"
#include "infer/tasks/images.h"
#include "infer/tasks/task.h"
#include "passes/precision/recipe.h"
#include "train/run_setup.h"

namespace octet {
namespace {

constexpr int64_t kLongestDefault = 2048;

struct EvalFlags : ModelFlags {
  std::string split_on;
  std::vector<std::string> recipes;
  EvalTaskFlags task_flags;
  CalibFlags calib;
  std::vector<std::string> tasks = {"perplexity"};
  std::vector<std::string> data;
  int64_t max_documents = 0, max_tokens = 0, seq = 0, batch = 8;
  bool per_document = false, per_row = false, checks_generation = false;
};

// "perplexity" and "nll" are one computation, named by what is looked for; ":FILE" is its text.
struct Task {
  std::string name;
  std::vector<std::string> data;
};

Task parse_task(const std::string& text, const EvalFlags& flags) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::vector<std::string> kinds = {"nll", "perplexity"};
  if (std::ranges::find(kinds, kind) == kinds.end()) {
    std::vector<std::string> names = kinds;
    for (const TaskDef& task : all_tasks()) names.emplace_back(task.name);
    for (const ImageTask& task : image_tasks()) names.emplace_back(task.name);
    names.emplace_back("spans");
    throw Error(
        ErrorCode::invalid_argument,
        "--tasks: expected nll or perplexity, alone or with :FILE, spans:FILE, or evaluation "
        "tasks, got '{}'; the nearest is {}",
        text, nearest_name(kind, names));
  }
  if (colon == std::string::npos) return {text, flags.data};
  return {text, {text.substr(colon + 1)}};
}

std::vector<Task> parse_tasks(const EvalFlags& flags) {
  std::vector<Task> tasks;
  for (const std::string& task : flags.tasks) tasks.push_back(parse_task(task, flags));
  return tasks;
}

// Files of a task, tokenized once where the model is a run.
TokenStream named_stream(const Task& task, const EvalFlags& flags, const ModelSource& source,
                         const RunDataOptions& run_options) {
  if (!are_token_shards(posix_files(), task.data)) expect_tokenizer(source);
  std::optional<TokenCacheOptions> cache;
  if (source.run)
    cache = token_cache_options(*source.run, source.tokenizer, flags.split_on, run_options);
  return open_model_text(source, task.data, flags.split_on, run_options.log, cache);
}

TokenStream task_stream(Files& files, const Task& task, const EvalFlags& flags,
                        const ModelSource& source, const RunDataOptions& run_options) {
  if (!task.data.empty()) return named_stream(task, flags, source, run_options);
  if (!source.run) {
    throw Error(ErrorCode::invalid_argument,
                "--data: expected text or token shards, got none: '{}' is no run with validation "
                "data of its own",
                flags.model);
  }
  return open_run_data(files, *source.run, source.spec, run_options).val;
}

// The table, and whose sum is not finite.
struct EvalResult {
  Table table{{"task", "documents", "tokens", "nll", "perplexity"}, {}};
  std::string nonfinite = {};  // the first such task

  void add(const std::string& task, const NllSum& nll, int64_t n_documents) {
    table.rows.push_back(cells(task, n_documents, nll.n_tokens, fmt::format("{:.6f}", nll.mean()),
                               fmt::format("{:.4f}", std::exp(nll.mean()))));
    if (nonfinite.empty() && !std::isfinite(nll.sum)) nonfinite = task;
  }
  void expect_finite() const {
    if (nonfinite.empty()) return;
    throw Error(ErrorCode::numerics, "[eval] expected a finite log-likelihood, got none of {}",
                nonfinite);
  }
};

void add_documents(const Task& task, const EvalFlags& flags, const TokenStream& stream,
                   BoundPlan& evaluate, EvalResult& result) {
  const auto documents =
      documents_of(stream, {.max_documents = flags.max_documents, .max_tokens = flags.seq});
  const auto results = document_nll(evaluate, documents, {.batch = flags.batch, .seq = flags.seq});
  NllSum total;
  for (size_t i = 0; i < results.size(); ++i) {
    total.add(results[i]);
    if (flags.per_document) result.add(fmt::format("{} #{}", task.name, i), results[i], 1);
  }
  result.add(task.name, total, std::ssize(results));
}

// The sum of all rows, and each row's own where it is asked for: what standard errors are made of.
void add_windows(const Task& task, const EvalFlags& flags, const EvalRows& windows,
                 BoundPlan& evaluate, EvalResult& result) {
  const std::vector<NllSum> rows = row_nll(evaluate, windows, flags.batch);
  NllSum total;
  for (size_t i = 0; i < rows.size(); ++i) {
    total.add(rows[i]);
    if (flags.per_row) result.add(fmt::format("{} #{}", task.name, i), rows[i], 1);
  }
  result.add(task.name, total, 1);
}

// Where the recipe has no scales that are measured over a batch, equal bits are promised on the
// CPU.
void check_run(const EvalFlags& flags, const std::vector<Task>& tasks, ModelSource& source,
               const GlobalOptions& options) {
  constexpr int64_t kTokens = 10'000, kLongest = 256;
  CheckSize size{.batch = flags.batch, .seq = std::min(flags.seq, kLongest)};
  size.n_tokens = flags.max_tokens > 0 ? flags.max_tokens : kTokens;
  if (!source.run) source.spec.rope_seq = size.seq;
  const TokenStream stream =
      task_stream(posix_files(), tasks.front(), flags, source,
                  {.log = make_log(options), .threads = options.threads, .on_progress = {}});
  Backend backend = open_backend(options, {.same_rows = true});
  Inference model(source, check_functions(size), text_machine(backend));
  const GenerationCheck check = check_generation(model, stream, size);
  const auto n = static_cast<double>(check.n_tokens);
  print_table(options, {{"recipe", "tokens", "equal", "largest_difference", "forward_ms_per_token",
                         "cached_ms_per_token"},
                        {cells(source.recipe, check.n_tokens, check.n_equal,
                               fmt::format("{:.3g}", check.largest),
                               fmt::format("{:.4f}", check.forward_ms / n),
                               fmt::format("{:.4f}", check.cached_ms / n))}});
  if (!std::isfinite(check.largest))
    throw Error(ErrorCode::numerics, "[generation] expected finite log-probabilities, got others");
  const bool is_exact = options.device == "cpu" && !find_recipe(source.recipe).linears.quantized;
  if (is_exact && check.n_equal != check.n_tokens) {
    throw Error(ErrorCode::numerics,
                "[generation] expected equal bits of all {} log-probabilities, got {} that differ",
                check.n_tokens, check.n_tokens - check.n_equal);
  }
}

// One of several recipes may have its scales calibrated; the others measure theirs.
void calibrate_sources(const EvalFlags& flags, std::vector<ModelSource>& sources,
                       const GlobalOptions& options) {
  std::vector<ModelSource*> predicting;
  std::vector<std::string> names;
  for (ModelSource& source : sources) {
    if (!predicts_scales(source.recipe)) continue;
    predicting.push_back(&source);
    names.push_back(source.recipe);
  }
  if (flags.calib.files.empty()) {
    for (ModelSource* source : predicting) calibrate_source(*source, flags.calib, options);
    return;
  }
  if (predicting.size() > 1) {
    throw Error(ErrorCode::invalid_argument,
                "--calib: expected one recipe whose scales are predicted, got {}",
                fmt::join(names, ", "));
  }
  calibrate_source(predicting.empty() ? sources.front() : *predicting.front(), flags.calib,
                   options);
}

// All tasks are evaluation tasks, or none is.
bool are_evaluation_tasks(const EvalFlags& flags) {
  const auto n = std::ranges::count_if(flags.tasks, is_evaluation_task);
  if (n == 0) return false;
  for (const std::string& task : flags.tasks) {
    if (!is_evaluation_task(task)) parse_task(task, flags);
  }
  if (n == std::ssize(flags.tasks)) return true;
  throw Error(ErrorCode::invalid_argument,
              "--tasks: expected nll and perplexity apart from evaluation tasks, got both");
}

// The task that stands where none is named, of a model that writes no text.
bool is_of_rows(const std::vector<Task>& tasks, const ModelSpec& spec) {
  return !model_def(spec.kind).writes_text && tasks.size() == 1 &&
         tasks.front().name == "perplexity";
}

EvalRowsCall rows_call(const EvalFlags& flags) {
  const EvalTaskFlags& task = flags.task_flags;
  return {flags.data, task.limit, flags.seq, flags.batch, task.stride};
}

void run_eval(EvalFlags flags, const GlobalOptions& options) {
  Files& files = posix_files();
  const Log log = make_log(options);
  const bool are_images = are_image_tasks(flags.tasks), are_spans = are_span_tasks(flags.tasks);
  const bool are_tasks = !are_images && !are_spans && are_evaluation_tasks(flags);
  std::vector<Task> tasks;
  if (!are_tasks && !are_images && !are_spans) tasks = parse_tasks(flags);
  ModelSource source = open_model_source(flags, log);
  if (flags.recipes.empty()) flags.recipes = {source.recipe};
  flags.calib.split_on = flags.split_on, flags.calib.batch = flags.batch;
  std::vector<ModelSource> sources;
  for (const std::string& recipe : flags.recipes)
    sources.push_back(source_with_recipe(source, recipe, options.sets));
  const EvalTasksCall call{flags.tasks, flags.batch, flags.seq, flags.task_flags};
  if (are_images) return run_image_tasks(call, sources, options);
  if (are_spans) return run_span_tasks(call, sources, options);
  if (is_of_rows(tasks, source.spec)) return run_eval_rows(rows_call(flags), sources, options);
  if (are_tasks) {
    calibrate_sources(flags, sources, options);
    return run_eval_tasks(call, sources, options);
  }
  if (flags.recipes.size() > 1) {
    throw Error(ErrorCode::invalid_argument,
                "--recipe: expected one for nll and perplexity, got {}", flags.recipes.size());
  }
  source = sources.front();
  expect_text(source.spec);
  if (flags.seq == 0) flags.seq = std::min(source.seq, kLongestDefault);
  if (!source.run) source.spec.rope_seq = flags.seq;
  flags.calib.seq = flags.seq;
  calibrate_source(source, flags.calib, options);
  const RowDocuments documents = source.run ? row_documents(*source.run) : RowDocuments::joined;
  if (flags.checks_generation) return check_run(flags, tasks, source, options);
  Backend backend = open_backend(options);
  const FunctionKey function{function::evaluate,
                             {.batch = flags.batch, .seq = flags.seq, .documents = documents}};
  Inference model(source, std::span(&function, 1), text_machine(backend));
  BoundPlan& evaluate = model.function(function.name, function.size);
  const RunDataOptions data_options = {
      .log = log, .threads = options.threads, .on_progress = tokenize_painter(options)};
  EvalResult result;
  for (const Task& task : tasks) {
    const TokenStream stream = task_stream(files, task, flags, source, data_options);
    if (!flags.split_on.empty() || flags.max_documents > 0 || flags.per_document) {
      add_documents(task, flags, stream, evaluate, result);
      continue;
    }
    const RowOptions rows{.seq = flags.seq, .boundaries = eval_boundaries(documents)};
    const int64_t n = stream.n_tokens(), wanted = flags.max_tokens > 0 ? flags.max_tokens : n;
    add_windows(task, flags, SampleEval(stream, rows, std::min(wanted, n) + 1), evaluate, result);
  }
  print_table(options, result.table);
  result.expect_finite();
}

}  // namespace

void add_eval_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* eval = app.add_subcommand(
      "eval", "log-likelihood of text under a model, and evaluation tasks from local files");
  add_model_flags(*eval, *flags);
  std::string names;
  for (const TaskDef& task : all_tasks()) names += fmt::format(", {}", task.name);
  for (const ImageTask& task : image_tasks()) names += fmt::format(", {}", task.name);
  eval->add_option("--tasks", flags->tasks,
                   "nll, perplexity, nll:FILE, perplexity:FILE, spans:FILE" + names +
                       "; NAME:mc by letter (docs/evaluation.md)")
      ->delimiter(',');
  EvalTaskFlags& task = flags->task_flags;
  eval->add_option("--task-data", task.folder, "the folder of the evaluation tasks' files");
  eval->add_option("--shots", task.shots, "examples before each question; the task's own otherwise")
      ->check(CLI::Range(int64_t{0}, int64_t{1000}));
  add_enum_option(*eval, "--convention", task.convention, "prompts and scores of evaluation tasks");
  eval->add_option("--limit", task.limit, "the first documents of each task; 0: all")
      ->check(CLI::NonNegativeNumber);
  eval->add_option("--requests", task.requests,
                   "a file of each request's log-likelihood; what it holds is not run again")
      ->type_name("OUT.jsonl");
  eval->add_option("--stride", task.stride,
                   "spans: tokens that two windows of a context have in common; the run's, or 128")
      ->check(CLI::NonNegativeNumber);
  eval->add_option("--max-answer", task.max_answer, "spans: tokens of an answer, at most")
      ->check(CLI::PositiveNumber);
  eval->add_option("--predictions", task.predictions,
                   "spans: a file for {ID: answer}, as SQuAD's script reads it")
      ->type_name("OUT.json");
  eval->add_option("--data", flags->data,
                   "text, folders or token shards; without it a run's own validation data")
      ->delimiter(',');
  eval->add_option("--recipe", flags->recipes,
                   "precision; the run's, or fp32 for a model folder; several for evaluation tasks")
      ->delimiter(',');
  add_calib_option(*eval, flags->calib);
  eval->add_option("--split-on", flags->split_on,
                   "text between documents; each is then evaluated on its own");
  eval->add_option("--max-documents", flags->max_documents, "the first ones only; 0: all")
      ->check(CLI::NonNegativeNumber);
  eval->add_option("--max-tokens", flags->max_tokens, "predicted tokens of undivided text; 0: all")
      ->check(CLI::NonNegativeNumber);
  eval->add_option("--seq", flags->seq, "longest context; 0: the model's, at most 2048")
      ->check(CLI::NonNegativeNumber);
  eval->add_option("--batch", flags->batch, "sequences at a time")->check(CLI::PositiveNumber);
  eval->add_flag("--check-generation", flags->checks_generation,
                 "compare prefill and decode over a KV cache with the training forward, token by "
                 "token; 10,000 tokens unless --max-tokens says otherwise");
  eval->add_flag("--per-document", flags->per_document, "a row for each document, too");
  eval->add_flag("--per-row", flags->per_row, "undivided text: a row for each window, too");
  add_nonfinite_flag(*eval, flags->allow_nonfinite);
  eval->callback([flags, &options] { run_eval(*flags, options); });
}

}  // namespace octet
