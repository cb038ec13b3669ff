#include "infer/tasks/task.h"

#include "base/error.h"

namespace octet {

std::string find_task_file(const TaskQuery& query, const std::vector<std::string>& paths) {
  std::string looked;
  for (const std::string& path : paths) {
    const std::string whole = join_path(query.folder, path);
    if (query.files.exists(whole)) return whole;
    looked += (looked.empty() ? "" : ", ") + path;
  }
  throw Error(ErrorCode::bad_data, "[tasks] {}: expected one of {} in '{}', got none", query.name,
              looked, query.folder);
}

std::string text_of(const OrderedJson& document, const char* key) {
  const auto it = document.find(key);
  if (it != document.end() && it->is_string()) return it->get<std::string>();
  throw Error(ErrorCode::bad_data, "[tasks] expected the text '{}' in a document, got {}", key,
              it == document.end() ? "none" : it->type_name());
}

int64_t index_of(const OrderedJson& document, const char* key) {
  const auto it = document.find(key);
  if (it != document.end() && it->is_number_integer() && it->get<int64_t>() >= 0) {
    return it->get<int64_t>();
  }
  throw Error(ErrorCode::bad_data, "[tasks] expected the index '{}' in a document, got {}", key,
              it == document.end() ? "none" : it->type_name());
}

int64_t n_characters(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

TaskChoice spaced_choice(const std::string& context, const std::string& choice) {
  return {{context, " " + choice}, n_characters(choice)};
}

void expect_no_shots(const TaskQuery& query) {
  if (query.shots.value_or(0) == 0) return;
  throw Error(ErrorCode::invalid_argument,
              "--shots: {} expected 0 in lm-eval's convention, as there are no examples to show, "
              "got {}",
              query.name, *query.shots);
}

}  // namespace octet
