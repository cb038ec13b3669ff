// Questions whose answers are parts of a text: SQuAD's JSON, of version 1.1 and 2.0.
//   {"data": [{"paragraphs": [{"context": C, "qas": [{"id": I, "question": Q, "answers":
//   [{"text": A, "answer_start": N}], "is_impossible": false}]}]}]}
// N counts the characters (code points) of C before A.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/text_records.h"

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

// Of .json files and folders of them, in order. A question that is none, or one whose answer does
// not stand where it says and places are read, is left out, "FILE: question 'ID'". Throws
// Error{bad_data}, "[data] PATH: ...", for a file that is no such JSON.
Questions read_questions(const Files& files, const std::vector<std::string>& paths,
                         AnswerPlaces places, LeftOut& left_out);

}  // namespace octet
