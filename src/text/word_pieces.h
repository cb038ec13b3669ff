// WordPiece: a word is the longest token that begins it, then the longest one that goes on behind
// it, and so on; continuing tokens are spelled with a prefix. A word that cannot be covered, or
// that has more than `max_chars` characters, is the one unknown token.
// Source: Devlin et al. 2018, "BERT", as the `tokenizers` package runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/vocabulary.h"

namespace octet {

struct WordPieceOptions {
  std::string prefix = "##";  // of continuing tokens; may be empty
  int64_t max_chars = 100;    // of a word
  int32_t unknown = 0;        // the token of words without pieces
};

class WordPieces {
 public:
  // The cost of a word grows with its characters times the longest token.
  static constexpr int64_t kMaxChars = 1000;

  // Throws Error{invalid_argument} for max_chars outside 0 to kMaxChars.
  WordPieces(const Vocabulary& spelled, const WordPieceOptions& options);
  // Appends the tokens of the word, which is not empty. Bytes that are no UTF-8 are characters.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;
  const std::string& prefix() const { return options_.prefix; }

 private:
  ByteTrie tokens_;            // as spelled
  ByteTrie::Node continuing_;  // behind the prefix
  WordPieceOptions options_;
};

// How tokens are put together again: all but the first and continuing ones have a space in front.
// Source: the decoder WordPiece of tokenizer.json.
struct PieceSpacing {
  std::optional<std::string> prefix;  // of continuing tokens, which goes
  bool cleanup = false;               // no space before English punctuation and contractions

  std::string first(std::string_view token) const;  // of a text: a prefix stays
  std::string later(std::string_view token) const;
};

}  // namespace octet
