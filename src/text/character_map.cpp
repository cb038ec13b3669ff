#include "text/character_map.h"

#include <cstring>

#include "text/unicode.h"

namespace octet {
namespace {

// A unit of the double array: a byte, where its children stand, or a value.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1u) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFFu;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FFu;
}
uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & 0x200u) >> 6);
}

}  // namespace

std::optional<CharacterMap> CharacterMap::parse(std::string_view bytes) {
  uint32_t n_bytes = 0;
  if (bytes.size() < sizeof n_bytes) return std::nullopt;
  std::memcpy(&n_bytes, bytes.data(), sizeof n_bytes);
  bytes.remove_prefix(sizeof n_bytes);
  if (n_bytes == 0 || n_bytes % sizeof(uint32_t) != 0 || n_bytes > bytes.size())
    return std::nullopt;
  CharacterMap map;
  map.units_.resize(n_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), n_bytes);
  map.texts_ = std::string(bytes.substr(n_bytes));
  if (find_invalid_utf8(map.texts_) != map.texts_.npos) return std::nullopt;
  return map;
}

// Replacement of the shortest string that begins the text.
std::optional<std::string_view> CharacterMap::find(std::string_view text) const {
  size_t at = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) break;
    at ^= byte;
    if (at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
    const uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size() || value_of(units_[at]) > texts_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(texts_).substr(value_of(units_[at]));
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

void CharacterMap::append_cluster(std::string_view cluster, std::string& out) const {
  constexpr size_t kLongCluster = 6;  // bytes
  if (cluster.size() < kLongCluster) {
    if (const auto becomes = find(cluster)) {
      out += *becomes;
      return;
    }
  }
  for_each_character(cluster, [&](std::string_view character, int32_t) {
    out += find(character).value_or(character);
  });
}

void CharacterMap::append(std::string_view text, std::string& out) const {
  for_each_grapheme(text, [&](std::string_view cluster) { append_cluster(cluster, out); });
}

}  // namespace octet
