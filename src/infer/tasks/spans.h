// The evaluation task of questions whose answers are parts of a text: what a model with the head
// `span` answers, and how right that is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "data/questions.h"
#include "infer/inference.h"
#include "infer/model_source.h"
#include "text/tokenizer.h"

namespace octet {

struct AnswerRule {
  int64_t max_answer = 30;   // tokens
  bool may_be_none = false;  // whether "" is an answer
};

struct SpanTaskOptions {
  AnswerWindowOptions windows;
  int64_t max_answer = 30;
  int64_t limit = 0;  // questions; 0: all
};

struct SpanTask {
  Questions questions;
  QuestionWindows rows;
  int64_t seq = 0;  // tokens a row, at most
  AnswerRule rule;  // may be none where a question of the file has no answer
};

// Throws Error{bad_data} as read_questions() does and where no question is left,
// Error{invalid_argument} as window_questions() does.
SpanTask read_span_task(const Files& files, const std::string& path, const Tokenizer& tokenizer,
                        const SpanTaskOptions& options, const Log& log);

// Logits of one window, [tokens of the row, 2] f32: of the first and of the last token.
using SpanLogits = std::span<const float>;

// The answer to a question: of all its windows the tokens first .. last of the context, first <=
// last and at most max_answer of them, with the largest logits[first, 0] + logits[last, 1]; of
// equals the first one. Where it may be none, "" if the logits of [CLS], the least sum of the
// windows, are larger. White space around it is left out. Source: transformers,
// postprocess_qa_predictions, which looks among the n_best_size (20) largest of both alone.
std::string best_answer(std::string_view context, std::span<const TokenSpan> tokens,
                        std::span<const AnswerWindow> windows, std::span<const SpanLogits> logits,
                        const AnswerRule& rule);

// Scores of each question, in order.
struct SpanScores {
  std::vector<std::string> answers;  // "" of one that is left out
  std::vector<double> exact, f1;     // infer/metrics.h
  bool is_finite = true;             // all logits
};

// `batch` windows at a time. Throws Error{invalid_argument}, "[eval] ...", for a model of another
// head.
SpanScores score_spans(const ModelSource& source, const SpanTask& task, int64_t batch,
                       const TextMachine& machine, const OnProgress& on_progress = {});

}  // namespace octet
