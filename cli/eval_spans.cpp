#include "cli/eval_tasks.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/model_flags.h"
#include "infer/tasks/evaluate_tasks.h"
#include "infer/tasks/spans.h"
#include "nn/shape.h"
#include "text/padding.h"

namespace octet {
namespace {

constexpr int64_t kSeqDefault = 384;     // of a folder, as transformers' run_qa
constexpr int64_t kStrideDefault = 128;  // too

OrderedJson row_of(const std::string& task, const std::string& recipe, const SpanScores& scores) {
  const std::vector<double> zeros(scores.f1.size());
  const PairedDifference exact = paired_difference(scores.exact, zeros),
                         f1 = paired_difference(scores.f1, zeros);
  return {{"task", task},
          {"recipe", recipe},
          {"n", zeros.size()},
          {"exact", exact.mean},
          {"stderr_exact", stderr_json(exact.error)},
          {"f1", f1.mean},
          {"stderr_f1", stderr_json(f1.error)}};
}

SpanTaskOptions span_options(const EvalTasksCall& call, const ModelSource& source) {
  const int64_t most = longest_row(source.spec);
  const int64_t own = source.run ? source.seq : kSeqDefault;
  const int64_t stride = source.run ? source.run->data.stride : kStrideDefault;
  return {.windows = {.seq = std::min(call.seq > 0 ? call.seq : own, most),
                      .stride = call.flags.stride >= 0 ? call.flags.stride : stride,
                      .cut = cut_side(posix_files(), source.tokenizer)},
          .max_answer = call.flags.max_answer,
          .limit = call.flags.limit};
}

// {ID: answer}, as SQuAD's script reads it.
void write_predictions(const std::string& path, const SpanTask& task, const SpanScores& scores) {
  OrderedJson answers = OrderedJson::object();
  for (size_t i = 0; i < scores.answers.size(); ++i)
    answers[task.questions.all[i].id] = scores.answers[i];
  write_atomically(posix_files(), path,
                   answers.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

}  // namespace

bool are_span_tasks(const std::vector<std::string>& tasks) {
  return are_file_tasks("spans", tasks);
}

void run_span_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                    const GlobalOptions& options) {
  const ModelSource& source = sources.front();
  expect_tokenizer(source);
  expect_one_prediction(call, sources.size());
  const Log log = make_log(options);
  const auto tokenizer = make_tokenizer(posix_files(), source.tokenizer);
  const SpanTaskOptions how = span_options(call, source);
  Backend backend = open_backend(options, {.same_rows = true});
  std::vector<OrderedJson> rows;
  std::string nonfinite;
  for (const std::string& name : call.tasks) {
    const SpanTask task = read_span_task(posix_files(), task_file(name), *tokenizer, how, log);
    SpanScores first;
    for (const ModelSource& one : sources) {
      warn_of_measured_batches(log, one.recipe, call.batch);
      const SpanScores scores = score_spans(one, task, call.batch, text_machine(backend, log),
                                            request_painter(options, name, one.recipe));
      OrderedJson row = row_of(name, one.recipe, scores);
      if (first.exact.empty()) {
        first = scores;
      } else {
        add_difference(row, "exact_difference", scores.exact, first.exact);
        add_difference(row, "f1_difference", scores.f1, first.f1);
      }
      rows.push_back(std::move(row));
      if (!scores.is_finite) nonfinite = name + " in " + one.recipe;
    }
    if (!call.flags.predictions.empty()) write_predictions(call.flags.predictions, task, first);
  }
  report_evaluations(source, rows, options);
  if (nonfinite.empty()) return;
  throw Error(ErrorCode::numerics, "[eval] expected finite logits, got others of {}", nonfinite);
}

}  // namespace octet
