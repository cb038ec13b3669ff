#include "text/bert_text.h"

namespace octet {

void add_bert_steps(Normalizer& normalizer, const BertText& text) {
  if (text.cleans_text) normalizer.add(MapCharacters{&kCleanText});
  if (text.spaces_ideographs) normalizer.add(MapCharacters{&kSpaceIdeographs});
  if (text.strips_accents) {
    normalizer.add(std::make_shared<const UnicodeNormalizer>(NormalForm::nfd));
    normalizer.add(MapCharacters{&kDropNonspacingMarks});
  }
  if (text.lower_case) normalizer.add(MapCharacters{&kLowercase});
}

void add_bert_words(PreTokenizer& words) {
  words.add(SplitCharacters{is_white_space, SplitBehavior::removed});
  words.add(SplitCharacters{is_punctuation, SplitBehavior::isolated});
}

}  // namespace octet
