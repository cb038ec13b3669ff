// octet eval --tasks hellaswag,...: evaluation tasks from local files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/ordered_json.h"
#include "cli/common.h"
#include "infer/inference.h"
#include "infer/model_source.h"
#include "infer/tasks/task.h"

namespace octet {

struct EvalTaskFlags {
  std::string folder;  // --task-data
  Convention convention = Convention::lm_eval;
  std::string requests;
  int64_t shots = -1, limit = 0;  // shots below 0: the task's own
  // Spans: stride below 0 is the run's; the longest answer in tokens; a file of the answers.
  int64_t stride = -1, max_answer = 30;
  std::string predictions;
  int64_t beams = 0;                       // of translations: 0: as the model's files say
  std::optional<int64_t> max_tokens = {};  // 200, or as the files of a model that translates say
};

// True if the name is that of an evaluation task, with or without ":mc".
bool is_evaluation_task(const std::string& name);

struct EvalTasksCall {
  std::vector<std::string> tasks;
  int64_t batch = 8, seq = 0;  // seq 0: the model's
  EvalTaskFlags flags;
};
// Prints a row for each task and source, which are one model with a recipe each, at least one; of
// several also how far each request's log-likelihood is from that of the first.
void run_eval_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                    const GlobalOptions& options);

// Tasks of pictures: those of infer/tasks/images.h.
// All tasks are tasks of pictures, or none is; throws Error{invalid_argument} where some are.
bool are_image_tasks(const std::vector<std::string>& tasks);

// Prints a row for each task and source, as run_eval_tasks() does.
void run_image_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                     const GlobalOptions& options);

// True if the tasks are KIND:FILE of this kind: all are such, or none is; throws
// Error{invalid_argument} where some are, or lack a file.
bool are_file_tasks(std::string_view kind, const std::vector<std::string>& tasks);
std::string task_file(const std::string& task);  // behind the colon; without one ""

// Tasks of questions: spans:FILE. Throws as are_file_tasks() does.
bool are_span_tasks(const std::vector<std::string>& tasks);

// Prints a row for each task and source, as run_eval_tasks() does.
void run_span_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                    const GlobalOptions& options);

// Tasks of pairs of a source and a target: bleu:FILE, chrf:FILE.
// All tasks are such, or none is; throws Error{invalid_argument} where some are, or lack a file.
bool are_translation_tasks(const std::vector<std::string>& tasks);

// Prints a row for each task and source, as run_eval_tasks() does.
void run_translation_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                           const GlobalOptions& options);

// Tasks of questions about pictures: vqa:FILE. Throws as are_file_tasks() does.
bool are_picture_tasks(const std::vector<std::string>& tasks);

// Prints a row for each task and source, as run_eval_tasks() does, and one for each type of
// question.
void run_picture_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                       const GlobalOptions& options);

// A line on the terminal: how many of a task's requests are done; nothing where there is none.
OnProgress request_painter(const GlobalOptions& options, const std::string& task,
                           const std::string& recipe);
// Throws Error{invalid_argument} where --task-data is not given.
void expect_task_data(const EvalTaskFlags& flags);
// Throws Error{invalid_argument} where --predictions would keep more than one task's under a
// recipe.
void expect_one_prediction(const EvalTasksCall& call, size_t n_recipes);
// A warning where results depend on what is evaluated together.
void warn_of_measured_batches(const Log& log, const std::string& recipe, int64_t batch);
// A standard error; null where there is none, of one row.
OrderedJson stderr_json(double error);
// "NAME" and "stderr_NAME": the mean of a[i] - b[i] and its standard error (paired_difference),
// where there are as many of both.
void add_difference(OrderedJson& row, const std::string& name, const std::vector<double>& a,
                    const std::vector<double>& b, const std::vector<int64_t>& clusters = {});
// Prints rows, and keeps them with a run whose checkpoint they are of.
void report_evaluations(const ModelSource& source, const std::vector<OrderedJson>& rows,
                        const GlobalOptions& options);

// Throws Error{numerics} where a row has a value of this key that is not finite: "[eval] expected a
// finite WHAT, got none of TASK in RECIPE". What was found has been printed.
void expect_finite(const std::vector<OrderedJson>& rows, const char* key, const char* what);

// Rows of evaluations as a table: the columns that any of them has.
Table evaluation_table(const std::vector<OrderedJson>& rows);

}  // namespace octet
