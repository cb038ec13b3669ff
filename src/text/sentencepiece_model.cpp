#include "text/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "text/unicode.h"

namespace octet {
namespace {

enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
  uint64_t number = 0;
  Wire wire = Wire::varint;
  uint64_t value = 0;      // varint, fixed
  std::string_view bytes;  // length-delimited
};

// The fields of one message.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}
  bool is_damaged() const { return is_damaged_; }

  // False at the end, and where the message is damaged.
  bool next(Field& field) {
    if (rest_.empty() || is_damaged_) return false;
    uint64_t tag = 0;
    if (!varint(tag)) return damaged();
    field.number = tag >> 3;
    field.wire = static_cast<Wire>(tag & 7);
    switch (field.wire) {
      case Wire::varint:
        return varint(field.value) || damaged();
      case Wire::fixed64:
        return fixed(field.value, 8) || damaged();
      case Wire::fixed32:
        return fixed(field.value, 4) || damaged();
      case Wire::bytes: {
        uint64_t n = 0;
        if (!varint(n) || n > rest_.size()) return damaged();
        field.bytes = rest_.substr(0, n);
        rest_.remove_prefix(n);
        return true;
      }
    }
    return damaged();
  }

 private:
  bool damaged() {
    is_damaged_ = true;
    return false;
  }
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool fixed(uint64_t& value, size_t n) {
    if (rest_.size() < n) return false;
    value = 0;
    std::memcpy(&value, rest_.data(), n);
    rest_.remove_prefix(n);
    return true;
  }

  std::string_view rest_;
  bool is_damaged_ = false;
};

bool parse_piece(std::string_view bytes, SentencePiece& piece) {
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.number == 1 && field.wire == Wire::bytes) piece.text = field.bytes;
    if (field.number == 2 && field.wire == Wire::fixed32) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    }
    if (field.number == 3 && field.wire == Wire::varint) {
      if (field.value < 1 || field.value > 6) return false;
      piece.type = static_cast<PieceType>(field.value);
    }
  }
  return !message.is_damaged() && !piece.text.empty() && std::isfinite(piece.score) &&
         find_invalid_utf8(piece.text) == piece.text.npos &&
         piece.text.find('\0') == piece.text.npos;
}

bool parse_trainer(std::string_view bytes, SentencePieceModel& model) {
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.wire == Wire::varint) {
      if (field.number == 3) {
        if (field.value < 1 || field.value > 4) return false;
        model.type = static_cast<SentencePieceModel::Type>(field.value);
      }
      if (field.number == 24) model.space_is_suffix = field.value != 0;
      if (field.number == 35) model.byte_fallback = field.value != 0;
    } else if (field.wire == Wire::bytes) {
      if (field.number == 46) model.bos_piece = field.bytes;
      if (field.number == 47) model.eos_piece = field.bytes;
    }
  }
  return !message.is_damaged();
}

bool parse_normalizer(std::string_view bytes, SentencePieceModel& model) {
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.number == 2 && field.wire == Wire::bytes) model.character_map = field.bytes;
    if (field.wire != Wire::varint) continue;
    if (field.number == 3) model.adds_dummy_prefix = field.value != 0;
    if (field.number == 4) model.removes_extra_spaces = field.value != 0;
    if (field.number == 5) model.escapes_spaces = field.value != 0;
  }
  return !message.is_damaged();
}

// A map is a u32 length, a double-array trie of that many bytes, and the strings that its leaves
// point into. Source: darts-clone's units: bit 31 a leaf with a value; else an offset, shifted by 8
// where bit 9 is set, which is combined with a byte by exclusive or.
bool is_sound_map(std::string_view map) {
  uint32_t n_trie = 0;
  if (map.size() <= sizeof n_trie) return false;
  std::memcpy(&n_trie, map.data(), sizeof n_trie);
  map.remove_prefix(sizeof n_trie);
  if (n_trie >= map.size() || n_trie % 4 != 0 || n_trie < 1024 || map.back() != '\0') return false;
  const size_t n_units = n_trie / 4, n_strings = map.size() - n_trie;
  for (size_t i = 0; i < n_units; ++i) {
    uint32_t unit = 0;
    std::memcpy(&unit, map.data() + 4 * i, sizeof unit);
    if (unit >> 31 != 0) {
      if ((unit & 0x7FFFFFFF) >= n_strings) return false;
    } else {
      const size_t offset = size_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
      if (((i ^ offset) | 0xFF) >= n_units) return false;
    }
  }
  return true;
}

bool is_sound(const SentencePieceModel& model) {
  std::unordered_set<std::string_view> seen;
  int n_unknown = 0;
  for (const SentencePiece& piece : model.pieces) {
    if (!seen.insert(piece.text).second) return false;
    n_unknown += piece.type == PieceType::unknown;
  }
  return n_unknown == 1 && (model.character_map.empty() || is_sound_map(model.character_map));
}

}  // namespace

std::optional<SentencePieceModel> parse_sentencepiece_model(std::string_view bytes) {
  SentencePieceModel model;
  Message message(bytes);
  for (Field field; message.next(field);) {
    if (field.wire != Wire::bytes) return std::nullopt;
    bool is_whole = true;
    if (field.number == 1) is_whole = parse_piece(field.bytes, model.pieces.emplace_back());
    if (field.number == 2) is_whole = parse_trainer(field.bytes, model);
    if (field.number == 3) is_whole = parse_normalizer(field.bytes, model);
    if (!is_whole) return std::nullopt;
  }
  if (message.is_damaged() || !is_sound(model)) return std::nullopt;
  return model;
}

}  // namespace octet
