// The texts that a conversation is trained as, and what the assistant said in them.
//
// Where the template marks answers ({% generation %}), and where the text up to each answer, with
// the generation prompt, begins the text with it, and that the whole, it is one text. Where a
// template rewrites earlier turns, each answer has a text of its own, rendered as at inference: the
// messages before it with the generation prompt, and the answer as the template renders it last.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "text/chat_template.h"

namespace octet {

struct AnswerText {
  std::string text;
  ByteSpans spans;               // that are trained
  std::vector<size_t> messages;  // of each span
};

struct LeftOutAnswer {
  size_t message;
  std::string why;
};

struct AnswerTexts {
  std::vector<AnswerText> texts;  // at least one
  bool are_apart = false;         // a text for each answer
  // The part of the generation prompt that rendered answers lack, "<think>\n", where they differ.
  std::string prompt_end = {};
  std::vector<LeftOutAnswer> left_out = {};
};

// `untrained`: messages of the assistant that are no labels. Throws Error{bad_data} where the
// template refuses, and where no answer is left.
AnswerTexts answer_texts(const ChatTemplate& chat, const OrderedJson& context,
                         const std::vector<size_t>& untrained, const std::tm& clock);

}  // namespace octet
