// Content of a SentencePiece model file. Source: sentencepiece_model.proto and the encoding of
// Protocol Buffers; fields that are not listed are passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

enum class PieceType {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct SentencePiece {
  std::string_view text;
  float score = 0;
  PieceType type = PieceType::normal;
};

// Views are into the file's bytes.
struct SentencePieceModel {
  enum class Type { unigram = 1, bpe = 2, word = 3, character = 4 };
  std::vector<SentencePiece> pieces;
  Type type = Type::unigram;
  bool byte_fallback = false;
  bool space_is_suffix = false;
  std::string_view bos_piece = "<s>", eos_piece = "</s>";
  std::string_view character_map;  // empty: text is not normalized
  bool adds_dummy_prefix = true, removes_extra_spaces = true, escapes_spaces = true;
};

// Nothing for other bytes, and for a model that is damaged. Checks what a library relies on: one
// unknown piece, no piece that is empty or given twice, finite scores, a character map whose
// indices lie within it.
std::optional<SentencePieceModel> parse_sentencepiece_model(std::string_view bytes);

}  // namespace octet
