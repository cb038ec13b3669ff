// octet eval --tasks vqa:FILE: how many answers to questions about pictures are right.
#include <map>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/eval_tasks.h"
#include "cli/model_flags.h"
#include "infer/tasks/evaluate_tasks.h"
#include "infer/tasks/vqa.h"

namespace octet {
namespace {

struct Answered {
  int64_t n = 0, n_right = 0;
};

OrderedJson accuracy_row(const std::string& task, const std::string& recipe,
                         const std::string& type, const Answered& answered) {
  const Share right = share_of(answered.n_right, answered.n);
  return {{"task", task},    {"recipe", recipe},   {"type", type},
          {"n", answered.n}, {"acc", right.value}, {"stderr", stderr_json(right.error)}};
}

void write_answers(const std::string& path, const std::vector<PictureQuestion>& questions,
                   const std::vector<std::string>& answers) {
  std::string text;
  for (size_t i = 0; i < answers.size(); ++i) {
    const OrderedJson row = {
        {"question", questions[i].question}, {"images", questions[i].pictures},
        {"type", questions[i].type},         {"answers", questions[i].answers},
        {"prediction", answers[i]},          {"right", is_right(answers[i], questions[i])}};
    text += json_line(row) + "\n";
  }
  write_atomically(posix_files(), path, text);
}

}  // namespace

bool are_picture_tasks(const std::vector<std::string>& tasks) {
  return are_file_tasks("vqa", tasks);
}

void run_picture_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                       const GlobalOptions& options) {
  const ModelSource& source = sources.front();
  for (const ModelSource& one : sources) {
    if (model_def(one.spec.kind).sees_pictures) continue;
    throw Error(ErrorCode::invalid_argument,
                "--tasks: expected a model that sees pictures (llava, idefics3) for {}, got {}",
                call.tasks.front(), model_def(one.spec.kind).name);
  }
  expect_tokenizer(source);
  expect_one_prediction(call, sources.size());
  const Log log = make_log(options);
  Backend backend = open_backend(options, {.same_rows = true});
  std::vector<OrderedJson> rows;
  for (const std::string& task : call.tasks) {
    const auto questions =
        read_picture_questions(posix_files(), task_file(task), call.flags.limit, log);
    for (const ModelSource& one : sources) {
      warn_of_measured_batches(log, one.recipe, call.batch);
      const std::vector<std::string> answers = answer_questions(
          one, questions, {.batch = call.batch, .max_tokens = call.flags.max_tokens.value_or(200)},
          text_machine(backend, log));
      Answered all;
      std::map<std::string, Answered> by_type;
      for (size_t i = 0; i < answers.size(); ++i) {
        const int64_t n_right = is_right(answers[i], questions[i]) ? 1 : 0;
        for (Answered* of : {&all, &by_type[questions[i].type]}) of->n += 1, of->n_right += n_right;
      }
      rows.push_back(accuracy_row(task, one.recipe, "all", all));
      for (const auto& [type, of_type] : by_type) {
        if (by_type.size() > 1 || type != "other")
          rows.push_back(accuracy_row(task, one.recipe, type, of_type));
      }
      if (!call.flags.predictions.empty())
        write_answers(call.flags.predictions, questions, answers);
    }
  }
  report_evaluations(source, rows, options);
}

}  // namespace octet
