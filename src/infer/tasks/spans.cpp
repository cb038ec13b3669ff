#include "infer/tasks/spans.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "infer/metrics.h"
#include "infer/run_encoder.h"

namespace octet {
namespace {

constexpr float kMin = -std::numeric_limits<float>::infinity();

// A part of the context, in bytes.
struct SpanChoice {
  float score = kMin;
  int64_t begin = 0, end = 0;
};

void choose_within(const AnswerWindow& window, SpanLogits logits, std::span<const TokenSpan> tokens,
                   int64_t max_answer, SpanChoice& best) {
  const float* of_context = logits.data() + 2 * window.context_begin;
  const auto part =
      tokens.subspan(static_cast<size_t>(window.first), static_cast<size_t>(window.n));
  for (int64_t first = 0; first < window.n; ++first) {
    for (int64_t last = first; last < std::min(window.n, first + max_answer); ++last) {
      const float score = of_context[2 * first] + of_context[2 * last + 1];
      if (score > best.score) {
        best = {score, part[static_cast<size_t>(first)].begin, part[static_cast<size_t>(last)].end};
      }
    }
  }
}

void expect_span_head(const ModelSpec& spec) {
  const ModelDef& def = model_def(spec.kind);
  if (!def.heads.empty() && head_of(spec).head == ModelHead::span) return;
  throw Error(ErrorCode::invalid_argument,
              "[eval] expected a model that says where answers stand (model.head: span), got {}",
              def.name);
}

}  // namespace

SpanTask read_span_task(const Files& files, const std::string& path, const Tokenizer& tokenizer,
                        const SpanTaskOptions& options, const Log& log) {
  SpanTask task{.questions = {}, .rows = {}, .seq = options.windows.seq, .rule = {}};
  LeftOut left_out(log);
  task.questions = read_questions(files, {path}, AnswerPlaces::unread, left_out);
  task.rule.max_answer = options.max_answer;
  task.rule.may_be_none =
      std::ranges::any_of(task.questions.all, [](const Question& q) { return q.answers.empty(); });
  const auto limit = static_cast<size_t>(options.limit);
  if (limit > 0 && task.questions.all.size() > limit) task.questions.all.resize(limit);
  task.rows = window_questions(task.questions, tokenizer, options.windows, left_out);
  left_out.finish();
  const auto is_asked = [](const auto& windows) { return !windows.empty(); };
  if (std::ranges::any_of(task.rows.windows, is_asked)) return task;
  throw Error(ErrorCode::bad_data, "[eval] '{}': expected a question at least, got none{}", path,
              left_out.n() == 0 ? "" : " (" + left_out.first() + ")");
}

std::string best_answer(std::string_view context, std::span<const TokenSpan> tokens,
                        std::span<const AnswerWindow> windows, std::span<const SpanLogits> logits,
                        const AnswerRule& rule) {
  SpanChoice best;
  float none = -kMin;
  for (size_t i = 0; i < windows.size(); ++i) {
    none = std::min(none, logits[i][0] + logits[i][1]);
    choose_within(windows[i], logits[i], tokens, rule.max_answer, best);
  }
  if (rule.may_be_none && none > best.score) return "";
  const std::string_view answer =
      context.substr(static_cast<size_t>(best.begin), static_cast<size_t>(best.end - best.begin));
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = answer.find_first_not_of(kSpace);
  if (first == answer.npos) return "";
  return std::string(answer.substr(first, answer.find_last_not_of(kSpace) + 1 - first));
}

SpanScores score_spans(const ModelSource& source, const SpanTask& task, int64_t batch,
                       const TextMachine& machine, const OnProgress& on_progress) {
  expect_span_head(source.spec);
  std::vector<EncodedTexts> rows;
  for (const auto& windows : task.rows.windows) {
    for (const AnswerWindow& window : windows) rows.push_back(window.row);
  }
  SpanScores scores;
  std::vector<std::vector<float>> logits(rows.size());
  const EncoderCall call{
      .output = "spans", .batch = batch, .max_tokens = task.seq, .on_progress = on_progress};
  run_encoder(source, rows, call, machine, [&](size_t row, std::span<const float> values) {
    logits[row].assign(values.begin(), values.end());
    const auto is_finite = [](float x) { return std::isfinite(x); };
    scores.is_finite = scores.is_finite && std::ranges::all_of(values, is_finite);
  });
  size_t row = 0;
  for (size_t i = 0; i < task.questions.all.size(); ++i) {
    const Question& question = task.questions.all[i];
    const std::vector<AnswerWindow>& windows = task.rows.windows[i];
    const std::vector<SpanLogits> own(logits.begin() + static_cast<int64_t>(row),
                                      logits.begin() + static_cast<int64_t>(row + windows.size()));
    row += windows.size();
    scores.answers.push_back(best_answer(task.questions.contexts[question.context],
                                         task.rows.contexts[question.context], windows, own,
                                         task.rule));
    std::vector<std::string> right;
    for (const Answer& answer : question.answers) {
      if (!normalized_answer(answer.text).empty()) right.push_back(answer.text);
    }
    const AnswerScore score = score_answer(scores.answers.back(), right);
    scores.exact.push_back(score.exact);
    scores.f1.push_back(score.f1);
  }
  return scores;
}

}  // namespace octet
