// GSM8K (Cobbe et al. 2021) and SVAMP (Patel et al. 2021): word problems with generated answers.
#include "base/error.h"
#include "data/json_values.h"
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

}  // namespace octet
