// HellaSwag (Zellers et al. 2019): which of four endings a text has. The file has six lines a
// document: "activity: text", the right ending's number, and the endings.
#include "base/error.h"
#include "base/input_limits.h"
#include "data/byte_stream.h"
#include "infer/tasks/task.h"

namespace octet {
namespace {

constexpr size_t kEndings = 4;

std::vector<std::string> lines_of(const Files& files, const std::string& path) {
  constexpr size_t kPiece = 1 << 20;
  const uint64_t most = input_limits().max_unpacked_bytes;
  const auto stream = open_stream(files, path);
  std::string text;
  for (size_t n = kPiece; n > 0;) {
    const size_t at = text.size();
    text.resize(at + kPiece);
    n = stream->read(std::span(text).subspan(at));
    text.resize(at + n);
    if (text.size() > most) {
      throw Error(ErrorCode::bad_data, "[tasks] {}: expected at most {} bytes, got more", path,
                  most);
    }
  }
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

TaskData read_hellaswag(const TaskQuery& query) {
  expect_no_shots(query);
  const std::string path = find_task_file(
      query, {"hellaswag/hellaswag_val_full.txt.bz2", "hellaswag/hellaswag_val_full.txt",
              "hellaswag_val_full.txt.bz2", "hellaswag_val_full.txt"});
  const std::vector<std::string> lines = lines_of(query.files, path);
  TaskData data{.split = "validation"};
  for (size_t i = 0; i < lines.size(); i += 2 + kEndings) {
    const bool is_whole = i + 2 + kEndings <= lines.size() && lines[i + 1].size() == 1 &&
                          lines[i + 1][0] >= '0' && lines[i + 1][0] < '0' + char{kEndings};
    if (!is_whole) {
      throw Error(ErrorCode::bad_data,
                  "[tasks] {}:{}: expected a text, a number from 0 to 3 and four endings, got '{}'",
                  path, i + 1, lines[std::min(i + 1, lines.size() - 1)].substr(0, 40));
    }
    TaskDocument document{.id = fmt::to_string(data.documents.size())};
    for (size_t k = 0; k < kEndings; ++k) {
      document.choices.push_back(spaced_choice(lines[i], lines[i + 2 + k]));
    }
    document.gold = lines[i + 1][0] - '0';
    data.documents.push_back(std::move(document));
  }
  return data;
}

}  // namespace octet
