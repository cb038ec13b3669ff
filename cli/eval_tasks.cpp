#include "cli/eval_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "data/token_cache.h"
#include "infer/model_texts.h"
#include "infer/tasks/evaluate_tasks.h"
#include "infer/tasks/evaluations.h"
#include "infer/tasks/request_log.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

constexpr const char* kTaskColumns[] = {"step",
                                        "task",
                                        "convention",
                                        "split",
                                        "shots",
                                        "recipe",
                                        "type",
                                        "n",
                                        "acc",
                                        "stderr",
                                        "top5",
                                        "cross_entropy",
                                        "bleu",
                                        "chrf",
                                        "exact",
                                        "stderr_exact",
                                        "f1",
                                        "stderr_f1",
                                        "acc_norm",
                                        "stderr_norm",
                                        "flexible",
                                        "stderr_flexible",
                                        "perplexity",
                                        "bits_per_byte",
                                        "log_likelihood",
                                        "difference",
                                        "stderr_difference",
                                        "acc_difference",
                                        "stderr_acc_difference",
                                        "exact_difference",
                                        "stderr_exact_difference",
                                        "f1_difference",
                                        "stderr_f1_difference"};

std::string cell_of(const OrderedJson& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{:.4f}", value.get<double>()) : value.dump();
}

OrderedJson row_of(const PreparedTask& task, const TaskResult& result, const std::string& recipe) {
  OrderedJson row = {{"task", task.name},        {"convention", enum_name(task.convention)},
                     {"split", task.data.split}, {"shots", task.data.shots},
                     {"recipe", recipe},         {"n", result.n}};
  const auto add = [&](const char* name, const char* error, const std::optional<Share>& share) {
    if (!share) return;
    row[name] = share->value;
    row[error] = stderr_json(share->error);
  };
  add("acc", "stderr", result.acc);
  add("acc_norm", "stderr_norm", result.acc_norm);
  add("flexible", "stderr_flexible", result.flexible);
  if (result.perplexity) row["perplexity"] = *result.perplexity;
  if (result.bits_per_byte) row["bits_per_byte"] = *result.bits_per_byte;
  if (!result.log_likelihoods.empty()) {
    double sum = 0;
    for (const double x : result.log_likelihoods) sum += x;
    row["log_likelihood"] = sum / static_cast<double>(result.log_likelihoods.size());
  }
  return row;
}

class Evaluation {
 public:
  Evaluation(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
             const GlobalOptions& options)
      : call_(call), sources_(sources), options_(options), files_(posix_files()) {
    const ModelSource& source = sources.front();
    tokenizer_ = make_tokenizer(files_, source.tokenizer);
    limits_.longest = call.seq > 0 ? std::min(call.seq, source.seq) : source.seq;
    limits_.vocab = source.spec.vocab;
    limits_.n_new = std::min(limits_.n_new, std::max<int64_t>(1, limits_.longest / 2));
    for (const std::string& name : call.tasks) tasks_.push_back(prepare_task(query(name)));
    if (!call.flags.requests.empty()) {
      tokenizer_key_ = tokenizer_identity(files_, source.tokenizer, *tokenizer_);
      log_ = RequestLog(files_, call.flags.requests, model_fingerprint(files_, source));
    }
  }

  // Rows of what was scored before failure(), where there is one.
  std::vector<OrderedJson> run() {
    backend_ = open_backend(options_, {.same_rows = true});
    std::vector<OrderedJson> rows;
    std::vector<TaskResult> first;
    for (const ModelSource& source : sources_) {
      const std::vector<TaskResult> results = run_source(source);
      if (first.empty()) first = results;
      for (size_t i = 0; i < results.size(); ++i) {
        OrderedJson row = row_of(tasks_[i], results[i], source.recipe);
        if (source.recipe != sources_.front().recipe) {
          add_difference(row, "difference", results[i].log_likelihoods, first[i].log_likelihoods,
                         results[i].documents);
          add_difference(row, "acc_difference", results[i].right, first[i].right);
        }
        rows.push_back(std::move(row));
      }
      if (failure_) break;
    }
    // By task, the recipes one under the other.
    std::vector<OrderedJson> sorted;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      for (size_t k = i; k < rows.size(); k += tasks_.size()) sorted.push_back(rows[k]);
    }
    return sorted;
  }

  const std::optional<Error>& failure() const { return failure_; }

 private:
  TaskQuery query(const std::string& name) const {
    TaskQuery result{.files = files_, .name = name, .folder = call_.flags.folder};
    result.convention = call_.flags.convention;
    if (call_.flags.shots >= 0) result.shots = call_.flags.shots;
    result.limit = call_.flags.limit;
    return result;
  }

  PreparedTask prepare_task(const TaskQuery& query) const {
    return octet::prepare_task(query, *tokenizer_, limits_);
  }

  std::vector<TaskResult> run_source(const ModelSource& source) {
    int64_t capacity = 1;
    for (const PreparedTask& task : tasks_) {
      capacity = std::max(capacity, capacity_of(task, limits_));
    }
    const Log log = make_log(options_);
    warn_of_measured_batches(log, source.recipe, call_.batch);
    const auto model = make_text_model(
        source, {.n_entries = call_.batch, .capacity = capacity, .logits = LogitsFor::scoring},
        text_machine(backend_, log));
    TaskRun run{.model = *model,
                .tokenizer = *tokenizer_,
                .stop_tokens = stop_tokens(files_, source, *tokenizer_),
                .log = log_,
                .recipe = source.recipe,
                .settings = answer_settings(source, {.batch = call_.batch,
                                                     .longest = limits_.longest,
                                                     .n_new = limits_.n_new,
                                                     .tokenizer = tokenizer_key_,
                                                     .arithmetic = options_.arithmetic}),
                .limits = limits_};
    std::vector<TaskResult> results;
    for (const PreparedTask& task : tasks_) {
      run.on_progress = request_painter(options_, task.name, source.recipe);
      try {
        results.push_back(run_task(task, run));
      } catch (const Error& error) {
        failure_ = error;
        break;
      }
    }
    return results;
  }

  std::optional<Error> failure_;
  const EvalTasksCall& call_;
  const std::vector<ModelSource>& sources_;
  const GlobalOptions& options_;
  Files& files_;
  std::unique_ptr<Tokenizer> tokenizer_;
  uint64_t tokenizer_key_ = 0;
  TaskLimits limits_;
  std::vector<PreparedTask> tasks_;
  RequestLog log_;
  Backend backend_;
};

}  // namespace

bool is_evaluation_task(const std::string& name) {
  const std::string task = name.substr(0, name.find(":mc"));
  return std::any_of(all_tasks().begin(), all_tasks().end(),
                     [&](const TaskDef& def) { return def.name == task; });
}

OrderedJson stderr_json(double error) {
  return std::isnan(error) ? OrderedJson() : OrderedJson(error);
}

Table evaluation_table(const std::vector<OrderedJson>& rows) {
  Table table;
  for (const char* column : kTaskColumns) {
    const auto has = [&](const OrderedJson& row) { return row.contains(column); };
    if (std::ranges::any_of(rows, has)) table.columns.emplace_back(column);
  }
  for (const OrderedJson& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& column : table.columns) {
      cells.push_back(row.contains(column) ? cell_of(row[column]) : "");
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

OnProgress request_painter(const GlobalOptions& options, const std::string& task,
                           const std::string& recipe) {
  return count_painter(options, fmt::format("{} in {}: ", task, recipe), "requests", 16);
}

std::string task_file(const std::string& task) {
  const size_t colon = task.find(':');
  return colon == task.npos ? "" : task.substr(colon + 1);
}

bool are_file_tasks(std::string_view kind, const std::vector<std::string>& tasks) {
  const auto n = std::ranges::count_if(tasks, [&](const std::string& task) {
    return std::string_view(task).substr(0, task.find(':')) == kind;
  });
  if (n == 0) return false;
  const auto is_whole = [](const std::string& task) { return !task_file(task).empty(); };
  if (n == std::ssize(tasks) && std::ranges::all_of(tasks, is_whole)) return true;
  throw Error(ErrorCode::invalid_argument,
              "--tasks: expected {}:FILE alone, or several of them, got {}", kind,
              fmt::join(tasks, ","));
}

void expect_one_prediction(const EvalTasksCall& call, size_t n_recipes) {
  if (call.flags.predictions.empty() || (call.tasks.size() == 1 && n_recipes == 1)) return;
  throw Error(ErrorCode::invalid_argument,
              "--predictions: expected one task and one recipe, got {} and {}", call.tasks.size(),
              n_recipes);
}

void expect_task_data(const EvalTaskFlags& flags) {
  if (!flags.folder.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "--task-data: expected the folder of the tasks' files, got none");
}

void warn_of_measured_batches(const Log& log, const std::string& recipe, int64_t batch) {
  if (!measures_batches(find_recipe(recipe))) return;
  log.warning("{}: scales are measured over a batch of {}, on which results depend", recipe, batch);
}

void add_difference(OrderedJson& row, const std::string& name, const std::vector<double>& a,
                    const std::vector<double>& b, const std::vector<int64_t>& clusters) {
  if (a.empty() || a.size() != b.size()) return;
  const PairedDifference difference = paired_difference(a, b, clusters);
  row[name] = difference.mean;
  row["stderr_" + name] = stderr_json(difference.error);
}

void report_evaluations(const ModelSource& source, const std::vector<OrderedJson>& rows,
                        const GlobalOptions& options) {
  if (const auto step = checkpoint_step(source)) {
    std::vector<OrderedJson> stored;
    for (const OrderedJson& row : rows) {
      stored.push_back({{"step", *step}});
      stored.back().update(row);
    }
    add_evaluations(posix_files(), source.folder, stored);
  }
  if (options.json) {
    write_out(json_text(OrderedJson(rows)));
  } else {
    print_table(options, evaluation_table(rows));
  }
}

void expect_finite(const std::vector<OrderedJson>& rows, const char* key, const char* what) {
  for (const OrderedJson& row : rows) {
    if (!row.contains(key) || std::isfinite(row.at(key).get<double>())) continue;
    throw Error(ErrorCode::numerics, "[eval] expected a finite {}, got none of {} in {}", what,
                row.at("task").get<std::string>(), row.at("recipe").get<std::string>());
  }
}

void run_eval_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                    const GlobalOptions& options) {
  const ModelSource& source = sources.front();
  expect_tokenizer(source);
  expect_task_data(call.flags);
  Evaluation evaluation(call, sources, options);
  const std::vector<OrderedJson> rows = evaluation.run();
  report_evaluations(source, rows, options);
  if (evaluation.failure()) throw *evaluation.failure();
  for (const char* key : {"log_likelihood", "bits_per_byte"})
    expect_finite(rows, key, "log-likelihood");
}

}  // namespace octet
