#include "train/span_rows.h"

#include <algorithm>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "data/answer_windows.h"
#include "data/questions.h"
#include "data/token_rows.h"
#include "train/run_setup.h"
#include "train/text_rows.h"

namespace octet {
namespace {

constexpr const char* kFirst = "start_positions";
constexpr const char* kLast = "end_positions";

}  // namespace

bool reads_spans(const RunInputs& inputs) {
  std::vector<std::string> names = inputs.names();
  std::ranges::sort(names);
  return names == std::vector<std::string>{kLast, kFirst, "tokens"};
}

std::shared_ptr<const RowSource> open_spans(const SpanRun& run, const RunInputs& inputs,
                                            const std::vector<std::string>& paths) {
  const auto& [files, config, spec, log] = run;
  check_boundaries(config);
  const auto tokenizer = run_tokenizer(files, config, spec, log);
  LeftOut left_out(log);
  const Questions questions = read_questions(files, paths, AnswerPlaces::read, left_out);
  const QuestionWindows all = window_questions(
      questions, *tokenizer,
      {.seq = config.model.seq,
       .stride = config.data.stride,
       .threads = std::max(1, usable_cores() / static_cast<int>(config.parallel.ranks))},
      left_out);
  left_out.finish();
  TokenRows rows;
  std::vector<int32_t> first, last;
  for (size_t i = 0; i < all.windows.size(); ++i) {
    const Question& question = questions.all[i];
    for (const AnswerWindow& window : all.windows[i]) {
      AnswerPlace place;
      if (!question.answers.empty()) {
        const Answer& answer = question.answers.front();
        place = answer_place(window, all.contexts[question.context], answer.begin, answer.end);
      }
      rows.add_row(window.row.ids, window.row.types);
      first.push_back(place.first);
      last.push_back(place.last);
    }
  }
  if (first.empty()) {
    throw Error(ErrorCode::bad_data, "[data] '{}': expected a question at least, got none{}",
                paths.front(), left_out.n() == 0 ? "" : " (" + left_out.first() + ")");
  }
  rows.of_rows = {{*inputs.find(kFirst), std::move(first)}, {*inputs.find(kLast), std::move(last)}};
  return encoded_rows(std::move(rows), config, inputs, *tokenizer);
}

}  // namespace octet
