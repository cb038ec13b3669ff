#include "cli/eval_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "cli/backend.h"
#include "infer/class_scores.h"
#include "infer/metrics.h"
#include "infer/tasks/evaluate_tasks.h"
#include "infer/tasks/images.h"

namespace octet {
namespace {

OrderedJson row_of(const std::string& task, const std::string& recipe, const ClassScores& scores) {
  const auto n = std::ssize(scores.right);
  const auto n_right = std::lround(mean(scores.right) * static_cast<double>(n));
  return {{"task", task},
          {"recipe", recipe},
          {"n", n},
          {"acc", mean(scores.right)},
          {"stderr", stderr_json(share_of(n_right, n).error)},
          {"top5", mean(scores.right5)},
          {"cross_entropy", -mean(scores.log_likelihoods)}};
}

// A task and its pictures, which all recipes of a model read.
struct Pictures {
  std::string task;
  std::unique_ptr<EvalRows> rows;
};

ClassScores scores_of(const Pictures& pictures, const EvalTasksCall& call,
                      const ModelSource& source, Backend& backend, const GlobalOptions& options) {
  const Log log = make_log(options);
  warn_of_measured_batches(log, source.recipe, call.batch);
  return score_classes(source, *pictures.rows, call.batch, text_machine(backend, log),
                       request_painter(options, pictures.task, source.recipe));
}

}  // namespace

bool are_image_tasks(const std::vector<std::string>& tasks) {
  const auto n = std::ranges::count_if(
      tasks, [](const std::string& name) { return find_image_task(name) != nullptr; });
  if (n == 0 || n == std::ssize(tasks)) return n != 0;
  throw Error(ErrorCode::invalid_argument, "--tasks: expected pictures or texts, got both: {}",
              fmt::join(tasks, ", "));
}

void run_image_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                     const GlobalOptions& options) {
  expect_task_data(call.flags);
  Backend backend = open_backend(options, {.same_rows = true});
  std::vector<OrderedJson> rows;
  for (const std::string& name : call.tasks) {
    const ImageTaskQuery query{*find_image_task(name), call.flags.folder, call.flags.limit};
    const Pictures pictures = {
        name, image_task_rows(posix_files(), query, sources.front(), make_log(options))};
    ClassScores first;
    for (const ModelSource& source : sources) {
      const ClassScores scores = scores_of(pictures, call, source, backend, options);
      OrderedJson row = row_of(name, source.recipe, scores);
      if (first.right.empty()) {
        first = scores;
      } else {
        add_difference(row, "difference", scores.log_likelihoods, first.log_likelihoods);
        add_difference(row, "acc_difference", scores.right, first.right);
      }
      rows.push_back(std::move(row));
    }
  }
  report_evaluations(sources.front(), rows, options);
  expect_finite(rows, "cross_entropy", "cross entropy");
}

}  // namespace octet
