#include "data/answer_windows.h"

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "base/thread_pool.h"

namespace octet {
namespace {

// f of each of [0, n), in parts that threads take.
template <typename F>
void for_all(ThreadPool& pool, size_t n, const F& f) {
  constexpr int64_t kPart = 64;
  const auto n_all = static_cast<int64_t>(n);
  pool.run(ceil_div(n_all, kPart), [&](int64_t part, int) {
    for (int64_t i = part * kPart; i < std::min(n_all, (part + 1) * kPart); ++i)
      f(static_cast<size_t>(i));
  });
}

}  // namespace

std::vector<AnswerWindow> answer_windows(const TextTemplate& around,
                                         std::span<const int32_t> question,
                                         std::span<const TokenSpan> context,
                                         const AnswerWindowOptions& options) {
  using Kind = TemplatePart::Kind;
  const std::vector<TemplatePart>& parts = around.pair;
  const int64_t n_own = std::ranges::count(parts, Kind::token, &TemplatePart::kind);
  const bool has_both = std::ranges::count(parts, Kind::first_text, &TemplatePart::kind) == 1 &&
                        std::ranges::count(parts, Kind::second_text, &TemplatePart::kind) == 1;
  if (!has_both) {
    throw Error(ErrorCode::invalid_argument,
                "[tokenizer] expected a tokenizer with a template of pairs, got one without");
  }
  const int64_t n_both = options.seq - n_own;
  if (n_both < 2) {
    throw Error(ErrorCode::invalid_argument,
                "model.seq: expected room for two tokens and the {} around them, got {}", n_own,
                options.seq);
  }
  question =
      question.first(static_cast<size_t>(std::min<int64_t>(std::ssize(question), n_both / 2)));
  const int64_t room = n_both - std::ssize(question), n = std::ssize(context);
  const int64_t step = room - std::min(options.stride, room / 2);
  std::vector<AnswerWindow> windows;
  for (int64_t first = 0;; first += step) {
    AnswerWindow& window = windows.emplace_back();
    window.first = first;
    window.n = std::min(room, n - first);
    std::vector<int32_t> ids;
    for (int64_t i = first; i < first + window.n; ++i)
      ids.push_back(context[static_cast<size_t>(i)].id);
    window.row = join_texts(parts, question, ids);
    for (const TemplatePart& part : parts) {
      if (part.kind == Kind::second_text) break;
      window.context_begin += part.kind == Kind::token ? 1 : std::ssize(question);
    }
    if (first + room >= n) return windows;
  }
}

AnswerPlace answer_place(const AnswerWindow& window, std::span<const TokenSpan> context,
                         int64_t begin, int64_t end) {
  const std::span<const TokenSpan> part =
      context.subspan(static_cast<size_t>(window.first), static_cast<size_t>(window.n));
  if (part.empty() || part.front().begin > begin || part.back().end < end) return {};
  // The last token that begins at or before the answer; the first that ends at or behind its end.
  const auto first = std::ranges::upper_bound(part, begin, {}, &TokenSpan::begin) - 1;
  const auto last = std::ranges::lower_bound(part, end, {}, &TokenSpan::end);
  const auto place = [&](auto at) {
    return static_cast<int32_t>(window.context_begin + (at - part.begin()));
  };
  return {place(first), place(last)};
}

QuestionWindows window_questions(const Questions& questions, const Tokenizer& tokenizer,
                                 const AnswerWindowOptions& options, LeftOut& left_out) {
  ThreadPool pool(options.threads);
  QuestionWindows result;
  result.contexts.resize(questions.contexts.size());
  std::vector<std::string> problems(questions.contexts.size());
  for_all(pool, questions.contexts.size(), [&](size_t i) {
    try {
      result.contexts[i] = tokenizer.encode_spans(questions.contexts[i]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
      problems[i] = error.what();
    }
  });
  const TextTemplate around = tokenizer.text_template();
  result.windows.resize(questions.all.size());
  for_all(pool, questions.all.size(), [&](size_t i) {
    const Question& question = questions.all[i];
    if (!problems[question.context].empty()) return;
    result.windows[i] = answer_windows(around, tokenizer.encode(question.text),
                                       result.contexts[question.context], options);
  });
  for (const Question& question : questions.all) {
    if (!problems[question.context].empty())
      left_out.add(question.place, problems[question.context]);
  }
  return result;
}

}  // namespace octet
