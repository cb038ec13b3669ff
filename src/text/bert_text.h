// BERT's changes of text before it looks for pieces. Source: BasicTokenizer of Devlin et al. 2018.
#pragma once

#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace octet {

struct BertText {
  bool cleans_text = true;        // kCleanText
  bool spaces_ideographs = true;  // kSpaceIdeographs
  bool strips_accents = true;     // NFD, kDropNonspacingMarks
  bool lower_case = true;         // kLowercase
};

void add_bert_steps(Normalizer& normalizer, const BertText& text);
void add_bert_words(PreTokenizer& words);  // without white space; punctuation stands alone

}  // namespace octet
