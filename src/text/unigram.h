// Unigram: of all ways to cut a word into tokens the one of highest score, the sum of its tokens'
// scores; a character that no token begins has the score of the worst token less 10. Of equal ways
// the one whose last tokens are longest. Neighbouring unknown characters are one; it is spelled in
// tokens of bytes where the vocabulary has them all, else it is the unknown token.
// Source: Kudo 2018, "Subword Regularization", as the `tokenizers` package runs it, in f64.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"

namespace octet {

struct UnigramOptions {
  int32_t unknown = -1;                    // -1: none
  std::array<int32_t, 256> byte_ids = {};  // -1: none, of all of them where there is no fallback
};

class Unigram {
 public:
  struct Token {
    std::string text;
    double score = 0;
  };
  // Ids are positions in the list; of equal texts the last one is found. Throws
  // Error{invalid_argument} for a score that is not finite, and for no token at all.
  Unigram(const std::vector<Token>& tokens, const UnigramOptions& options);

  // Appends the tokens of the word, which is not empty; time grows with its bytes times the longest
  // token. Bytes that are no UTF-8 are characters. Throws Error{bad_data} for a character without a
  // token where there is no unknown one.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  // The best way to cut a word's first bytes.
  struct Best {
    double score = 0;
    int32_t begin = -1;  // of its last token; -1: no way is known
    int32_t id = -1;
  };
  void extend(std::string_view word, size_t at, std::vector<Best>& best) const;
  void append(std::string_view piece, int32_t id, std::vector<int32_t>& ids) const;

  ByteTrie tokens_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  UnigramOptions options_;
};

}  // namespace octet
