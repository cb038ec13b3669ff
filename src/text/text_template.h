// One text or two with the special tokens around them, as models of pairs read them.
#pragma once

#include <cstdint>
#include <vector>

namespace octet {

struct TemplatePart {
  enum class Kind : uint8_t { token, first_text, second_text };
  Kind kind = Kind::token;
  int32_t id = -1;   // of a token
  int32_t type = 0;  // the token type of all that the part stands for
};

struct TextTemplate {
  std::vector<TemplatePart> single, pair;  // pair empty: the tokenizer has none
};

// Tokens before the text of a single template, and behind it.
std::vector<int32_t> tokens_before(const std::vector<TemplatePart>& single);
std::vector<int32_t> tokens_behind(const std::vector<TemplatePart>& single);

// [CLS] A [SEP], and [CLS] A [SEP] B [SEP] whose last two have type 1: BERT's.
TextTemplate bert_template(int32_t cls, int32_t sep);
// <s> A </s>, and <s> A </s> </s> B </s>; all types are 0: RoBERTa's.
TextTemplate roberta_template(int32_t cls, int32_t sep);
// A, and A B, of which B has type 1: where a file says nothing.
TextTemplate bare_template();

}  // namespace octet
