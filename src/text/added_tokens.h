// Tokens that are looked for in the text itself, before everything else: special tokens, and what
// was added to a vocabulary after its training. Source: the added tokens of tokenizer.json.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"

namespace octet {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;             // only where no word character is beside it
  bool lstrip = false, rstrip = false;  // takes the white space beside it
  bool normalized = false;              // is looked for in normalized text
  bool special = false;
};

// A part of a text: a token, or (id < 0) text between tokens.
struct Segment {
  int32_t id = -1;
  std::string_view text;
};

// Finds the leftmost token, the longest of those, then goes on behind it.
class AddedTokenFinder {
 public:
  void add(const AddedToken& token);  // of two with one content, the last counts
  bool empty() const { return tokens_.empty(); }
  // Calls `visit` for all of the text, in order; empty text is no segment.
  void for_each_segment(std::string_view text,
                        const std::function<void(const Segment&)>& visit) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at) const;
  bool stands_alone(const AddedToken& token, std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  ByteTrie contents_;  // of tokens_
  // True of two bytes that begin a token: most positions of a text are dismissed by it.
  std::vector<bool> begins_with_ = std::vector<bool>(65536);
};

}  // namespace octet
