// Questions whose answers are parts of a text: SQuAD's JSON, of version 1.1 and 2.0.
//   {"data": [{"paragraphs": [{"context": C, "qas": [{"id": I, "question": Q, "answers":
//   [{"text": A, "answer_start": N}], "is_impossible": false}]}]}]}
// N counts the characters (code points) of C before A.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/text_records.h"
#include "text/encode_texts.h"
#include "text/tokenizer.h"

namespace octet {

struct Answer {
  std::string text;
  int64_t begin = 0, end = 0;  // bytes of the context, where places are read
};

struct Question {
  std::string id, text;
  size_t context = 0;                // index of Questions::contexts
  std::vector<Answer> answers = {};  // empty: the context does not answer it
  std::string place = {};            // "FILE: question 'ID'"
};

struct Questions {
  std::vector<std::string> contexts;
  std::vector<Question> all;
};

enum class AnswerPlaces : uint8_t { unread, read };

// Questions of .json files and folders of them, in order. A question that is none, or one whose
// answer does not stand where it says and places are read, is left out, "FILE: question 'ID'".
// Throws Error{bad_data}, "[data] PATH: ...", for a file that is no such JSON.
Questions read_questions(const Files& files, const std::vector<std::string>& paths,
                         AnswerPlaces places, LeftOut& left_out);

// A question with what fits of its context beside it, in as many rows as the context needs.
struct AnswerWindowOptions {
  int64_t seq = 0;             // tokens a row, with those around the two
  int64_t stride = 0;          // context tokens that a window has in common with the one before it
  CutSide cut = CutSide::end;  // what the first window of a long context lacks
  int threads = 0;             // that tokenize; 0: one per core that this process may use
};

struct AnswerWindow {
  EncodedTexts row;
  int64_t context_begin = 0;  // place in the row of the window's first context token
  int64_t first = 0, n = 0;   // the context's tokens [first, first + n)
};

// Windows of `seq` tokens as transformers cuts them with truncation "only_second": the next one
// begins `stride` tokens, at most half of a window's, before the end of the one before it, until
// the end of the context is there; with CutSide::start the first window is the context's end, and
// the others go back to its start. A question takes at most half of a row. Throws
// Error{invalid_argument} without a template of pairs in which the context comes once, or without
// room.
std::vector<AnswerWindow> answer_windows(const TextTemplate& around,
                                         std::span<const int32_t> question,
                                         std::span<const TokenSpan> context,
                                         const AnswerWindowOptions& options);

// Places in the row of the first and the last token of the bytes [begin, end) of the context; 0
// and 0, which is [CLS], where not all of them are in the window.
struct AnswerPlace {
  int32_t first = 0, last = 0;
  bool operator==(const AnswerPlace&) const = default;
};
AnswerPlace answer_place(const AnswerWindow& window, std::span<const TokenSpan> context,
                         int64_t begin, int64_t end);

// Questions as a model reads them.
struct QuestionWindows {
  std::vector<std::vector<TokenSpan>> contexts;    // of each of Questions::contexts
  std::vector<std::vector<AnswerWindow>> windows;  // of each question; none of one that is left out
};
// By several threads; the result hangs on neither their number nor their order. A question is left
// out where the tokenizer cannot say where the tokens of its context stand. Throws as
// answer_windows() and Tokenizer::encode_spans() do.
QuestionWindows window_questions(const Questions& questions, const Tokenizer& tokenizer,
                                 const AnswerWindowOptions& options, LeftOut& left_out);

}  // namespace octet
