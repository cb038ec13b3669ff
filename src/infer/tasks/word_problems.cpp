// GSM8K (Cobbe et al. 2021), SVAMP (Patel et al. 2021), NumGLUE (Mishra et al. 2022) and what
// MAmmoTH's evaluation takes of DeepMind's Mathematics (Davies et al. 2021): problems with
// generated answers.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/parse_text.h"
#include "data/json_values.h"
#include "infer/tasks/evaluate_tasks.h"
#include "infer/tasks/task.h"

namespace octet {
namespace {

std::vector<OrderedJson> rows_of(const TaskQuery& query, const std::string& path, int64_t most) {
  std::vector<OrderedJson> rows;
  JsonValues values(query.files, path);
  while (const auto value = values.next()) {
    if (most >= 0 && std::ssize(rows) == most) break;
    rows.push_back(parse_ordered_json(value->text, fmt::format("{}:{}", path, value->line)));
  }
  return rows;
}

std::string question(const std::string& text) {
  return "Question: " + text + "\nAnswer:";
}

// The three that lm-eval names; the last is the usual token that ends a turn.
const std::vector<std::string> kStop = {"Question:", "</s>", "<|im_end|>"};

// A JSON number, or a text that is a finite one: "1,234", "-0.5". Nothing of other values.
std::optional<std::string> number_in(const OrderedJson& row, const char* key) {
  const auto value = row.find(key);
  if (value == row.end()) return std::nullopt;
  if (value->is_number()) return value->dump();
  if (!value->is_string()) return std::nullopt;
  const std::string plain = plain_number(value->get<std::string>());
  const auto number = parse_number<double>(plain);
  return number && std::isfinite(*number) ? std::optional(plain) : std::nullopt;
}

// The first of these texts that a row has.
std::string one_text_of(const OrderedJson& row, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (row.contains(key)) return text_of(row, key);
  }
  return text_of(row, *keys.begin());
}

struct Problem {
  std::string question;
  std::optional<std::string> number;  // none where the answer is none
};

// Problem of NumGLUE's own files, whose kinds are its eight tasks, or {"question", "answer"}.
// Comparisons, spans of a passage and inference (kinds 3, 6, 7) have no number.
Problem numglue_problem(const OrderedJson& row) {
  const std::string kind = row.contains("type") ? text_of(row, "type") : "";
  constexpr std::string_view kWithNumbers[] = {"",       "Type_1", "Type_2",
                                               "Type_4", "Type_5", "Type_8"};
  if (kind == "Type_3" || kind == "Type_6" || kind == "Type_7") return {};
  if (std::ranges::count(kWithNumbers, kind) == 0) {
    throw Error(ErrorCode::bad_data,
                "[tasks] numglue: expected a type from Type_1 to Type_8, got '{}'", kind);
  }
  if (kind == "Type_5") {
    const auto answer = row.find("answer");
    const bool has_parts = answer != row.end() && answer->is_object();
    return {text_of(row, "passage") + " " + text_of(row, "question"),
            has_parts ? number_in(*answer, "number") : number_in(row, "answer")};
  }
  return {text_of(row, "question"), number_in(row, "answer")};
}

Problem mathematica_problem(const OrderedJson& row) {
  return {one_text_of(row, {"question", "problem", "input"}), number_in(row, "answer")};
}

// The problems whose answers are numbers, by value; `split` says so. Each has its row's number.
TaskData number_problems(const TaskQuery& query, const std::string& path,
                         Problem (*problem_of)(const OrderedJson& row)) {
  expect_no_shots(query);
  TaskData data{.split = "test", .score = TaskScore::last_number};
  data.stop = kStop;
  const std::vector<OrderedJson> rows = rows_of(query, path, -1);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Problem problem = problem_of(rows[i]);
    if (!problem.number) continue;
    data.documents.push_back(
        {.id = fmt::to_string(i), .prompt = question(problem.question), .answer = *problem.number});
  }
  if (data.documents.empty()) {
    throw Error(ErrorCode::bad_data, "[tasks] {}: expected problems whose answers are numbers",
                path);
  }
  if (data.documents.size() != rows.size())
    data.split = fmt::format("test, {} of {} have numbers", data.documents.size(), rows.size());
  return data;
}

}  // namespace

TaskData read_gsm8k(const TaskQuery& query) {
  TaskData data{.split = "test", .shots = query.shots.value_or(5)};
  data.score = TaskScore::gsm8k_number;
  data.stop = kStop;
  std::string examples;
  if (data.shots > 0) {
    const std::string path = find_task_file(query, {"gsm8k/train.jsonl", "train.jsonl"});
    const auto rows = rows_of(query, path, data.shots);
    if (std::ssize(rows) < data.shots) {
      throw Error(ErrorCode::bad_data, "[tasks] {}: expected at least {} examples, got {}", path,
                  data.shots, rows.size());
    }
    for (const OrderedJson& row : rows) {
      examples += question(text_of(row, "question")) + " " + text_of(row, "answer") + "\n\n";
    }
  }
  const std::string path = find_task_file(query, {"gsm8k/test.jsonl", "test.jsonl"});
  for (const OrderedJson& row : rows_of(query, path, -1)) {
    data.documents.push_back({.id = fmt::to_string(data.documents.size()),
                              .prompt = examples + question(text_of(row, "question")),
                              .answer = text_of(row, "answer")});
  }
  return data;
}

TaskData read_svamp(const TaskQuery& query) {
  expect_no_shots(query);
  const std::string path = find_task_file(query, {"svamp/SVAMP.json", "SVAMP.json"});
  TaskData data{.split = "all", .score = TaskScore::last_number};
  data.stop = kStop;
  for (const OrderedJson& row : rows_of(query, path, -1)) {
    const auto answer = row.find("Answer");
    if (answer == row.end() || !answer->is_number()) {
      throw Error(ErrorCode::bad_data, "[tasks] {}: expected the number 'Answer', got {}", path,
                  answer == row.end() ? "none" : answer->type_name());
    }
    data.documents.push_back(
        {.id = text_of(row, "ID"),
         .prompt = question(text_of(row, "Body") + " " + text_of(row, "Question")),
         .answer = answer->dump()});
  }
  return data;
}

TaskData read_numglue(const TaskQuery& query) {
  const std::string path =
      find_task_file(query, {"numglue/NumGLUE_test.json", "numglue/NumGLUE_test.jsonl",
                             "numglue/numglue.json", "numglue/numglue.jsonl"});
  return number_problems(query, path, numglue_problem);
}

TaskData read_mathematica(const TaskQuery& query) {
  const std::string path =
      find_task_file(query, {"mathematica/mathematica.json", "mathematica/mathematica.jsonl",
                             "mathematics/mathematics.json", "mathematics/mathematics.jsonl"});
  return number_problems(query, path, mathematica_problem);
}

}  // namespace octet
