// Tokenizers that encode word by word: what all kinds of files but a few of SentencePiece's come
// down to.
//
// Text is cut at added tokens; each part is normalized, cut into words, and each word into pieces
// (word_pieces.h, unigram.h), or into bytes or characters, which are merged (bpe.h). Where the
// vocabulary has no token that spans two neighbouring characters, words are cut there too before
// they are merged, so that more of them are met again.
#pragma once

#include <array>
#include <bitset>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/unigram.h"
#include "text/vocabulary.h"
#include "text/word_pieces.h"

namespace octet {

enum class Symbols { bytes, characters };  // what words are made of before merging

constexpr std::array<int32_t, 256> no_bytes() {
  std::array<int32_t, 256> ids = {};
  ids.fill(-1);
  return ids;
}

struct TokenizerParts {
  std::string name;       // for errors
  Vocabulary vocabulary;  // as words are matched
  BpeMerges merges;
  std::unique_ptr<const WordPieces> pieces;  // instead of merges
  std::unique_ptr<const Unigram> unigram;    // instead of both
  bool whole_words_only = false;             // a word is a token or unknown
  // Merges' affixes: before a word's characters but the first, and behind its last one.
  std::string inner_prefix, word_suffix;
  Symbols symbols = Symbols::bytes;
  std::array<int32_t, 256> byte_ids = no_bytes();  // -1: none
  // Of spelled bytes without a token: the tokens of their characters' own bytes. Empty: none.
  std::vector<std::vector<int32_t>> fallback_ids;
  int32_t unknown = -1;            // for characters without a token
  bool fuse_unknown = false;       // one for neighbours without one
  bool whole_words_first = false;  // a word that is a token is not made by merges
  Normalizer normalizer;
  PreTokenizer words;
  std::vector<AddedToken> added;
  SpecialText usual = SpecialText::plain;
  Vocabulary surfaces;                    // what ids decode to, special tokens included
  Vocabulary first_surfaces;              // the same of a text's first id; empty: as all others
  Vocabulary last_surfaces;               // and of its last one
  bool decode_strips_space = false;       // the first, which the normalizer put there
  bool decode_strips_last_space = false;  // the same at the end
  std::vector<int32_t> prefix, suffix, silent;  // silent: have no bytes within a text
  TextTemplate around;                          // empty: prefix and suffix, and no pairs
  std::optional<int32_t> bos, eos;

  void silence_ends() {
    for (const auto& end : {bos, eos})
      if (end) silent.push_back(*end);
  }
};

// Throws Error{bad_data} where the parts cannot encode every text.
std::unique_ptr<Tokenizer> word_tokenizer(TokenizerParts parts);

// Pairs of neighbouring characters that some token has, by class: ASCII, the mark of a space
// (U+2581), all others.
class JoinedCharacters {
 public:
  static constexpr size_t kMark = 128, kOther = 129, kClasses = 130;

  void add(std::string_view token);
  // The end of the part from `at` on that no token crosses.
  size_t end_of_part(std::string_view text, size_t at) const;

 private:
  struct Next {
    size_t type, end;
  };
  static Next next(std::string_view text, size_t at);

  std::array<std::bitset<kClasses>, kClasses> joined_ = {};
};

}  // namespace octet
