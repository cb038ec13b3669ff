#include "text/vocabulary.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace octet {

uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
  uint64_t hash = bytes.size() * kMultiplier;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  };
  const char* at = bytes.data();
  const size_t n = bytes.size();
  const auto load = [](const char* from, auto word) {
    std::memcpy(&word, from, sizeof word);
    return uint64_t{word};
  };
  // The last word overlaps what came before it.
  if (n >= 8) {
    for (const char* last = at + n - 8; at < last; at += 8) mix(load(at, uint64_t{}));
    mix(load(bytes.data() + n - 8, uint64_t{}));
  } else if (n >= 4) {
    mix(load(at, uint32_t{}) << 32 | load(at + n - 4, uint32_t{}));
  } else if (n > 0) {
    mix(load(at, uint8_t{}) << 16 | load(at + n / 2, uint8_t{}) << 8 | load(at + n - 1, uint8_t{}));
  }
  return hash * kMultiplier >> 16;
}

void Vocabulary::add(int64_t id, std::string_view bytes) {
  if (id < 0 || id >= kMaxTokens) {
    throw Error(ErrorCode::bad_data, "token {}: expected an id from 0 to {}", id, kMaxTokens - 1);
  }
  if (has(id)) throw Error(ErrorCode::bad_data, "token {}: expected each id once, got two", id);
  if (bytes.size() > kLongestToken) {
    throw Error(ErrorCode::bad_data, "token {}: expected at most {} bytes, got {}", id,
                kLongestToken, bytes.size());
  }
  if (arena_.size() + bytes.size() >= kUnused) {
    throw Error(ErrorCode::bad_data, "token {}: expected at most 4 GiB of tokens, got more", id);
  }
  if (id >= size()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = {static_cast<uint32_t>(arena_.size()),
                                      static_cast<uint32_t>(bytes.size())};
  arena_ += bytes;
  if (2 * ++n_used_ > slots_.size()) grow();
  int32_t& slot = slots_[slot_of(bytes)];
  if (slot < 0) slot = static_cast<int32_t>(id);
}

std::string_view Vocabulary::bytes(int32_t id) const {
  if (!has(id)) return {};
  const Slice slice = tokens_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(slice.offset, slice.length);
}

size_t Vocabulary::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_bytes(token) & mask;
  while (slots_[slot] >= 0 && bytes(slots_[slot]) != token) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  std::vector<int32_t> old = std::move(slots_);
  slots_.assign(std::max<size_t>(1024, 4 * old.size()), -1);
  for (const int32_t id : old) {
    if (id >= 0) slots_[slot_of(bytes(id))] = id;
  }
}

}  // namespace octet
