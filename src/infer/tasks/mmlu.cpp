// MMLU (Hendrycks et al. 2021): questions of 57 subjects with four choices, asked by letter behind
// the first examples of the subject's dev file. A row of a CSV file without a header: the question,
// four choices, the right letter.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "data/text_files.h"
#include "infer/tasks/task.h"

namespace octet {
namespace {

constexpr std::string_view kLetters = "ABCD", kTestEnd = "_test.csv", kByteOrder = "\xEF\xBB\xBF";
constexpr size_t kCells = 6;

// Rows as RFC 4180 has them: cells with commas, line ends or quotes stand in quotes, two quotes
// being one. A mark of byte order is skipped, and blank lines are no rows.
class CsvRows {
 public:
  CsvRows(const Files& files, const std::string& path) : path_(path), text_(files.read_text(path)) {
    if (text_.starts_with(kByteOrder)) at_ = kByteOrder.size();
  }

  // The next row; nothing behind the last.
  std::optional<std::vector<std::string>> next() {
    at_ = std::min(text_.find_first_not_of("\r\n", at_), text_.size());
    if (at_ == text_.size()) return std::nullopt;
    std::vector<std::string> row = {cell()};
    while (at_ < text_.size() && text_[at_] == ',') {
      ++at_;
      row.push_back(cell());
    }
    ++row_;
    return row;
  }

  std::string where() const { return fmt::format("{}, row {}", path_, row_); }

 private:
  std::string cell() {
    if (at_ >= text_.size() || text_[at_] != '"') {
      const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
      const size_t begin = std::exchange(at_, end);
      return text_.substr(begin, end - begin);
    }
    std::string value;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] != '"') {
        value += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        value += text_[++at_];
      } else {
        ++at_;
        expect_end_of_cell();
        return value;
      }
    }
    throw Error(ErrorCode::bad_data, "[tasks] {}, row {}: expected a quote that ends a cell", path_,
                row_ + 1);
  }

  // Behind a quote that ends a cell.
  void expect_end_of_cell() const {
    if (at_ == text_.size() || std::string_view(",\r\n").find(text_[at_]) != std::string::npos)
      return;
    throw Error(
        ErrorCode::bad_data,
        "[tasks] {}, row {}: expected a comma or the end of the line behind a quote that ends "
        "a cell, got 0x{:02x} at byte {}",
        path_, row_ + 1, static_cast<unsigned char>(text_[at_]), at_);
  }

  std::string path_, text_;
  size_t at_ = 0;
  int64_t row_ = 0;  // that was read last
};

struct MmluQuestion {
  std::string text;  // with the choices, and "Answer:"
  int64_t gold = 0;
};

std::optional<MmluQuestion> next_question(CsvRows& rows) {
  const auto cells = rows.next();
  if (!cells) return std::nullopt;
  const std::string_view letter = cells->size() == kCells ? stripped(cells->back()) : "";
  const size_t gold = letter.size() == 1 ? kLetters.find(letter) : kLetters.npos;
  if (gold == kLetters.npos) {
    throw Error(ErrorCode::bad_data,
                "[tasks] {}: expected a question, four choices and a letter from A to D, got {} "
                "cells and '{}'",
                rows.where(), cells->size(), cells->back());
  }
  MmluQuestion question{.text = std::string(stripped(cells->front())),
                        .gold = static_cast<int64_t>(gold)};
  for (size_t i = 0; i < kLetters.size(); ++i)
    question.text += fmt::format("\n{}. {}", kLetters[i], (*cells)[i + 1]);
  question.text += "\nAnswer:";
  return question;
}

// Text before each question of a subject.
std::string preamble_of(const TaskQuery& query, const std::string& dev, std::string subject,
                        int64_t shots) {
  std::ranges::replace(subject, '_', ' ');
  std::string text =
      "The following are multiple choice questions (with answers) about " + subject + ".\n\n";
  if (shots == 0) return text;
  CsvRows rows(query.files, dev);
  for (int64_t i = 0; i < shots; ++i) {
    const auto example = next_question(rows);
    if (!example) {
      throw Error(ErrorCode::bad_data, "[tasks] {}: expected at least {} examples, got {}", dev,
                  shots, i);
    }
    text += fmt::format("{} {}\n\n", example->text, kLetters[static_cast<size_t>(example->gold)]);
  }
  return text;
}

}  // namespace

TaskData read_mmlu(const TaskQuery& query) {
  const std::string test = find_task_file(query, {"mmlu/test", "mmlu/data/test"});
  const std::string dev = join_path(parent_path(test), "dev");
  TaskData data{.split = "test", .shots = query.shots.value_or(5), .has_norm = false};
  for (const DirectoryEntry& entry : query.files.list(test)) {
    if (!entry.name.ends_with(kTestEnd)) continue;
    const std::string subject = entry.name.substr(0, entry.name.size() - kTestEnd.size());
    const std::string preamble =
        preamble_of(query, join_path(dev, subject + "_dev.csv"), subject, data.shots);
    CsvRows rows(query.files, join_path(test, entry.name));
    for (int64_t n = 0; const auto question = next_question(rows); ++n) {
      TaskDocument document{.id = fmt::format("{}/{}", subject, n), .gold = question->gold};
      for (const char letter : kLetters)
        document.choices.push_back(
            spaced_choice(preamble + question->text, std::string(1, letter)));
      data.documents.push_back(std::move(document));
    }
  }
  if (data.documents.empty()) {
    throw Error(ErrorCode::bad_data, "[tasks] mmlu: expected files SUBJECT{} in '{}', got none",
                kTestEnd, test);
  }
  return data;
}

}  // namespace octet
