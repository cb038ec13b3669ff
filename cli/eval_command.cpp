#include "cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/nearest.h"
#include "base/parse_text.h"
#include "cli/backend.h"
#include "cli/calib_option.h"
#include "cli/enum_option.h"
#include "cli/eval_flags.h"
#include "cli/eval_recipe.h"
#include "cli/eval_tasks.h"
#include "cli/eval_text.h"
#include "cli/model_flags.h"
#include "cli/row_figures.h"
#include "infer/check_generation.h"
#include "infer/evaluate.h"
#include "infer/inference.h"
#include "infer/loaded_rms.h"
#include "infer/model_source.h"
#include "infer/tasks/evaluations.h"
#include "infer/tasks/images.h"
#include "infer/tasks/task.h"
#include "io/checkpoint.h"
#include "io/checkpoint_folder.h"
#include "io/manifest.h"
#include "passes/precision/recipe.h"
#include "train/validation_watch.h"

namespace octet {
namespace {

struct EvalFlags : ModelFlags {
  EvalTextFlags text;
  std::string step;
  std::vector<std::string> recipes, against;
  EvalTaskFlags task_flags;
  CalibFlags calib;
  std::vector<std::string> tasks = {"perplexity"};
  std::vector<std::string> data;
  bool checks_generation = false;
  int64_t batch_or(int64_t other) const { return text.batch > 0 ? text.batch : other; }
};

TextTask parse_task(const std::string& text, const EvalFlags& flags) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::vector<std::string> kinds = {"nll", "perplexity"};
  if (std::ranges::find(kinds, kind) == kinds.end()) {
    std::vector<std::string> names = kinds;
    for (const TaskDef& task : all_tasks()) names.emplace_back(task.name);
    for (const ImageTask& task : image_tasks()) names.emplace_back(task.name);
    names.insert(names.end(), {"spans", "bleu", "chrf", "vqa"});
    throw Error(
        ErrorCode::invalid_argument,
        "--tasks: expected nll or perplexity, alone or with :FILE, spans:FILE, or evaluation "
        "tasks, got '{}'{}",
        text, nearest_hint("; the nearest is ", kind, names));
  }
  if (colon == std::string::npos) return {text, flags.data};
  return {text, {text.substr(colon + 1)}};
}

std::vector<TextTask> parse_tasks(const EvalFlags& flags) {
  std::vector<TextTask> tasks;
  for (const std::string& task : flags.tasks) tasks.push_back(parse_task(task, flags));
  return tasks;
}

// Equal bits are promised on the CPU for a recipe without scales that are measured over a batch.
void check_run(const EvalFlags& flags, const std::vector<TextTask>& tasks, ModelSource source,
               const GlobalOptions& options) {
  constexpr int64_t kTokens = 10'000, kLongest = 256;
  const int64_t seq = flags.text.seq > 0 ? flags.text.seq : source.seq;
  CheckSize size{.batch = flags.batch_or(kEvalBatch), .seq = std::min(seq, kLongest)};
  size.n_tokens = flags.text.max_tokens > 0 ? flags.text.max_tokens : kTokens;
  if (!source.run) source.spec.rope_seq = size.seq;
  const TokenStream stream =
      open_eval_text(source, tasks.front(), flags.text,
                     {.log = make_log(options), .threads = options.threads, .on_progress = {}})
          .stream;
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

// Step of the lowest validation loss that a checkpoint knows of; 0: there was none.
int64_t best_step_of(const Files& files, const std::string& checkpoint) {
  const std::string path = join_path(checkpoint, kManifest);
  ValidationWatch watch;
  watch.read(parse_manifest(files.read_text(path), path).extra, checkpoint);
  return watch.best_step();
}

// The path of the run's checkpoint that --step names.
std::string checkpoint_of(Files& files, const std::string& model, const std::string& step,
                          const Log& log) {
  if (step.empty()) return model;
  const std::string folder = join_path(model, "ckpt");
  if (!files.exists(join_path(model, "config.yaml")) || !files.exists(folder)) {
    throw Error(ErrorCode::invalid_argument, "--step: expected a run beside it, got '{}'", model);
  }
  if (step == "newest") return model;
  std::vector<CheckpointEntry> whole = Checkpoints(files, folder, log).list();
  std::erase_if(whole, [](const CheckpointEntry& entry) { return !entry.is_whole(); });
  const bool is_best = step == "best" && !whole.empty();
  const int64_t wanted =
      is_best ? best_step_of(files, whole.back().path) : parse_number<int64_t>(step).value_or(0);
  if (is_best && wanted == 0) {
    throw Error(ErrorCode::bad_data,
                "--step: expected newest, got best: no evaluation of '{}' had a finite loss",
                model);
  }
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : whole) {
    if (entry.step == wanted) return entry.path;
    steps.push_back(entry.step);
  }
  throw Error(ErrorCode::bad_data,
              "--step: expected newest, best or one of the checkpoints of '{}' ({}), got {}{}",
              model, fmt::join(steps, ", "), step,
              is_best ? fmt::format(", step {} (train.keep_best keeps it)", wanted) : "");
}

// Which checkpoint of a run is read, and which one was the best.
void tell_step(const ModelSource& source, const Log& log) {
  const auto step = checkpoint_step(source);
  if (!step) return;
  const std::string folder = parent_path(source.weights.path);
  const int64_t best = best_step_of(posix_files(), folder);
  log.info("[eval] {}: step {}{}", source.folder, *step,
           best > 0 && best != *step
               ? fmt::format("; the lowest validation loss was at step {} (--step best)", best)
               : "");
}

// The task that stands where none is named, of a model that writes no text.
bool is_of_rows(const std::vector<TextTask>& tasks, const ModelSpec& spec) {
  return !model_def(spec.kind).writes_text && tasks.size() == 1 &&
         tasks.front().name == "perplexity";
}

// On its own data a run is evaluated in the batches of its validation.
EvalRowsCall rows_call(const EvalFlags& flags, const ModelSource& source) {
  const EvalTaskFlags& task = flags.task_flags;
  const bool is_own = source.run && flags.data.empty();
  return {.files = flags.data,
          .limit = task.limit,
          .seq = flags.text.seq,
          .batch = flags.text.batch,
          .default_batch = is_own ? source.run->train.batch : kEvalBatch,
          .stride = task.stride};
}

// The model under each of these recipes; where there is none, under its own.
std::vector<ModelSource> with_recipes(const ModelSource& source,
                                      const std::vector<std::string>& recipes,
                                      const GlobalOptions& options) {
  std::vector<ModelSource> sources;
  sources.reserve(recipes.size());
  for (const std::string& recipe : recipes)
    sources.push_back(source_with_recipe(source, recipe, options.sets));
  if (recipes.empty()) sources.push_back(source_with_recipe(source, source.recipe, options.sets));
  return sources;
}

// Appends the models of --against behind the model's own.
void add_other_models(const EvalFlags& flags, bool are_texts, std::vector<ModelSource>& sources,
                      const GlobalOptions& options) {
  if (flags.against.empty()) return;
  if (!are_texts || flags.checks_generation) {
    throw Error(ErrorCode::invalid_argument,
                "--against: expected --tasks nll or perplexity beside it, got {}",
                flags.checks_generation ? "--check-generation" : "others");
  }
  const Log log = make_log(options);
  for (const std::string& model : flags.against) {
    EvalFlags other = flags;
    other.adapter.clear();
    other.model = checkpoint_of(posix_files(), model, flags.step, log);
    const ModelSource source = open_model_source(other, log);
    expect_same_tokens(sources.front(), source);
    tell_step(source, log);
    std::ranges::move(with_recipes(source, flags.recipes, options), std::back_inserter(sources));
  }
}

void run_eval(EvalFlags flags, const CLI::App& command, const GlobalOptions& options) {
  const Log log = make_log(options);
  const bool are_images = are_image_tasks(flags.tasks), are_spans = are_span_tasks(flags.tasks);
  const bool are_translations = are_translation_tasks(flags.tasks);
  const bool are_pictures = are_picture_tasks(flags.tasks);
  const bool are_others = are_images || are_spans || are_translations || are_pictures;
  const bool are_tasks = !are_others && are_evaluation_tasks(flags);
  std::vector<TextTask> tasks;
  if (!are_tasks && !are_others) tasks = parse_tasks(flags);
  const bool reads_data = std::ranges::any_of(
      tasks, [](const TextTask& task) { return task.name.find(':') == std::string::npos; });
  expect_read_flags(command, {.reads_data = reads_data,
                              .are_tasks = are_tasks,
                              .are_images = are_images,
                              .are_spans = are_spans,
                              .are_translations = are_translations,
                              .are_pictures = are_pictures,
                              .checks_generation = flags.checks_generation});
  flags.model = checkpoint_of(posix_files(), flags.model, flags.step, log);
  const ModelSource source = open_model_source(flags, log);
  tell_step(source, log);
  flags.text.has_calib = !flags.calib.files.empty();
  flags.calib.split_on = flags.text.split_on, flags.calib.batch = flags.batch_or(kEvalBatch);
  std::vector<ModelSource> sources = with_recipes(source, flags.recipes, options);
  add_other_models(flags, !are_tasks && !are_others, sources, options);
  const EvalTasksCall call{flags.tasks, flags.batch_or(kEvalBatch), flags.text.seq,
                           flags.task_flags};
  if (are_images) return run_image_tasks(call, sources, options);
  if (are_spans) return run_span_tasks(call, sources, options);
  if (are_translations) return run_translation_tasks(call, sources, options);
  if (are_pictures) return run_picture_tasks(call, sources, options);
  if (is_of_rows(tasks, source.spec)) {
    expect_rows_flags(command);
    return run_eval_rows(rows_call(flags, source), sources, options);
  }
  if (!are_tasks) expect_text_flags(command);
  if (!are_tasks) {
    expect_text(source.spec);
    flags.calib.seq = flags.text.seq > 0 ? flags.text.seq : std::min(source.seq, kLongestWindow);
    for (ModelSource& one : sources)
      if (!one.run) one.spec.rope_seq = flags.calib.seq;
  }
  calibrate_sources(flags, sources, options);
  if (are_tasks) return run_eval_tasks(call, sources, options);
  if (!flags.checks_generation) return run_eval_text(tasks, flags.text, sources, options);
  if (sources.size() > 1) {
    throw Error(ErrorCode::invalid_argument,
                "--recipe: expected one with --check-generation, got {}", sources.size());
  }
  check_run(flags, tasks, sources.front(), options);
}

void add_text_options(CLI::App& eval, EvalTextFlags& text) {
  eval.add_option("--split-on,--separator", text.split_on,
                  "text between documents; each is then evaluated on its own");
  eval.add_option("--max-documents", text.max_documents, "the first ones only; 0: all")
      ->check(CLI::NonNegativeNumber);
  eval.add_option("--max-tokens", text.max_tokens,
                  "predicted tokens of undivided text, or conversations until they hold so many; "
                  "0: all; of a run's own data what its evaluations read")
      ->check(CLI::NonNegativeNumber);
  eval.add_option("--seq", text.seq, "longest context; the run's, or the model's, at most 2048")
      ->check(CLI::NonNegativeNumber);
  eval.add_option("--batch", text.batch,
                  "sequences at a time; 8, or of a run on text, or on its "
                  "own data its train.batch")
      ->check(CLI::PositiveNumber);
  eval.add_flag("--per-document", text.per_document, "a row for each document, too");
  eval.add_flag("--per-row", text.per_row,
                "undivided text: a row for each window, too; conversations: for each");
  eval.add_flag("--raw-text", text.is_raw, "JSON files are text like any other, not records");
  eval.add_flag("--text-end", text.ends_texts,
                "end each text with the tokenizer's end of text, as training does, and score it");
}

void add_translation_options(CLI::App& eval, EvalTaskFlags& task) {
  eval.add_option("--beams", task.beams,
                  "bleu, chrf: beams of a search; 1: none; 0: as the model's files say, else none")
      ->check(CLI::Range(0, 64));
  eval.add_option("--max-new-tokens", task.max_tokens, "bleu, chrf, vqa: tokens of a text, at most")
      ->check(CLI::PositiveNumber);
}

}  // namespace

void add_eval_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* eval = app.add_subcommand("eval",
                                      "log-likelihood of text and conversations under a model, and "
                                      "evaluation tasks from local files");
  add_model_flags(*eval, *flags);
  std::string names;
  for (const TaskDef& task : all_tasks()) names += fmt::format(", {}", task.name);
  for (const ImageTask& task : image_tasks()) names += fmt::format(", {}", task.name);
  eval->add_option("--tasks", flags->tasks,
                   "nll, perplexity, nll:FILE, perplexity:FILE, spans:FILE, bleu:FILE, chrf:FILE, "
                   "vqa:FILE" +
                       names + "; NAME:mc by letter (docs/evaluation.md)")
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
  add_translation_options(*eval, task);
  eval->add_option("--max-answer", task.max_answer, "spans: tokens of an answer, at most")
      ->check(CLI::PositiveNumber);
  eval->add_option("--predictions", task.predictions,
                   "spans: a file for {ID: answer}, as SQuAD's script reads it")
      ->type_name("OUT.json");
  eval->add_option("--data", flags->data,
                   "text, conversations (JSON), folders or token shards; without it a run's own "
                   "validation data")
      ->delimiter(',');
  eval->add_option(
          "--recipe", flags->recipes,
          "precision; the run's, or fp32 for a model folder; several are compared with the first")
      ->delimiter(',');
  eval->add_option(
          "--against", flags->against,
          "nll and perplexity: further models, on the same tokens, compared with the first")
      ->type_name("RUN|DIR")
      ->delimiter(',');
  add_calib_option(*eval, flags->calib);
  add_arithmetic_option(*eval, options);
  add_text_options(*eval, flags->text);
  eval->add_flag("--check-generation", flags->checks_generation,
                 "compare prefill and decode over a KV cache with the training forward, token by "
                 "token; 10,000 tokens unless --max-tokens says otherwise");
  eval->add_option(
          "--step", flags->step,
          "of a run: newest, best (of the lowest validation loss) or a checkpoint's number")
      ->type_name("STEP");
  add_nonfinite_flag(*eval, flags->allow_nonfinite);
  eval->callback([flags, eval, &options] { run_eval(*flags, *eval, options); });
}

}  // namespace octet
