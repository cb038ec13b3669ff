// SentencePiece's map of characters, as tokenizer.json holds it ("Precompiled"): strings and what
// they become, the strings in a double array. Source: sentencepiece's normalizer, as the
// `tokenizers` package runs it: a grapheme cluster of fewer than six bytes becomes what the
// shortest of the strings that begin it does, else each of its characters so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

class CharacterMap {
 public:
  // `bytes`: a length, u32, so many bytes of units, u32 each, and texts that end with NUL. Nothing
  // where they are not that. A place that leads out of them has no string.
  static std::optional<CharacterMap> parse(std::string_view bytes);

  // Text of valid UTF-8. Appends to `out`.
  void append(std::string_view text, std::string& out) const;

 private:
  std::optional<std::string_view> find(std::string_view text) const;
  void append_cluster(std::string_view cluster, std::string& out) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace octet
