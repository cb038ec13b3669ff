// octet eval --tasks vqa:FILE: how many answers to questions about pictures are right.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/eval_tasks.h"
#include "cli/model_flags.h"
#include "infer/tasks/vqa.h"

namespace octet {
namespace {

constexpr std::string_view kVqa = "vqa";

std::string questions_of(const std::string& task) {
  return task.size() > kVqa.size() + 1 ? task.substr(kVqa.size() + 1) : "";
}

OrderedJson accuracy_row(const std::string& task, const std::string& recipe,
                         const std::string& type, const std::vector<double>& right) {
  double sum = 0;
  for (const double one : right) sum += one;
  const auto n = static_cast<double>(right.size());
  const double share = sum / n;
  return {{"task", task}, {"recipe", recipe},
          {"type", type}, {"n", right.size()},
          {"acc", share}, {"stderr", n > 1 ? std::sqrt(share * (1 - share) / (n - 1)) : 0}};
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
  const auto n = std::ranges::count_if(tasks, [](const std::string& name) {
    return name == kVqa || name.starts_with(std::string(kVqa) + ":");
  });
  if (n == 0) return false;
  const auto is_whole = [](const std::string& name) { return !questions_of(name).empty(); };
  if (n == std::ssize(tasks) && std::ranges::all_of(tasks, is_whole)) return true;
  throw Error(ErrorCode::invalid_argument,
              "--tasks: expected vqa:FILE alone, or several of them, got {}",
              fmt::join(tasks, ","));
}

void run_picture_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                       const GlobalOptions& options) {
  const ModelSource& source = sources.front();
  if (!model_def(source.spec.kind).sees_pictures) {
    throw Error(ErrorCode::invalid_argument,
                "--tasks: expected a model that sees pictures (llava, idefics3) for {}, got {}",
                call.tasks.front(), model_def(source.spec.kind).name);
  }
  expect_tokenizer(source);
  expect_one_prediction(call, sources.size());
  const Log log = make_log(options);
  Backend backend = open_backend(options, {.same_rows = true});
  std::vector<OrderedJson> rows;
  for (const std::string& task : call.tasks) {
    const auto questions =
        read_picture_questions(posix_files(), questions_of(task), call.flags.limit);
    for (const ModelSource& one : sources) {
      warn_of_measured_batches(log, one.recipe, call.batch);
      const std::vector<std::string> answers = answer_questions(
          one, questions, {.batch = call.batch, .max_tokens = call.flags.max_tokens},
          text_machine(backend, log));
      std::vector<double> right;
      std::map<std::string, std::vector<double>> by_type;
      for (size_t i = 0; i < answers.size(); ++i) {
        right.push_back(is_right(answers[i], questions[i]) ? 1 : 0);
        by_type[questions[i].type].push_back(right.back());
      }
      rows.push_back(accuracy_row(task, one.recipe, "all", right));
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
