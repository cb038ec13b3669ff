// LAMBADA (Paperno et al. 2016), OpenAI's version: the last word of a passage.
#include "base/error.h"
#include "data/json_values.h"
#include "infer/tasks/task.h"

namespace octet {

TaskData read_lambada(const TaskQuery& query) {
  expect_no_shots(query);
  const std::string path =
      find_task_file(query, {"lambada/lambada_test.jsonl", "lambada_test.jsonl"});
  TaskData data{.split = "test", .score = TaskScore::last_word, .has_norm = false};
  JsonValues values(query.files, path);
  while (const auto value = values.next()) {
    const std::string where = fmt::format("{}:{}", path, value->line);
    const std::string text = text_of(parse_ordered_json(value->text, where), "text");
    const size_t space = text.rfind(' ');
    if (space == std::string::npos || space + 1 == text.size() || space == 0) {
      throw Error(ErrorCode::bad_data,
                  "[tasks] {}: expected a text that ends with a word, got '{}'", where,
                  text.substr(0, 40));
    }
    TaskDocument document{.id = fmt::to_string(data.documents.size())};
    document.choices.push_back(spaced_choice(text.substr(0, space), text.substr(space + 1)));
    data.documents.push_back(std::move(document));
  }
  return data;
}

}  // namespace octet
