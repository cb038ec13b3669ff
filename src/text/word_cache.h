// Words that one thread has encoded before with one tokenizer, and their tokens. Only speed depends
// on it: an entry is replaced when another word falls on it.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace octet {

class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  // The tokens of the word, or none where it is not known. Valid until the next put.
  std::span<const int32_t> find(std::string_view word) const {
    if (word.size() > kLongestWord) return {};
    const Entry& entry = entries_[hash_bytes(word) % kEntries];
    const bool is_same =
        entry.length == word.size() && std::memcmp(entry.word, word.data(), word.size()) == 0;
    return is_same ? std::span<const int32_t>(entry.ids, entry.n_ids) : std::span<const int32_t>();
  }

  void put(std::string_view word, std::span<const int32_t> ids) {
    if (word.size() > kLongestWord || ids.empty() || ids.size() > kMaxIds) return;
    Entry& entry = entries_[hash_bytes(word) % kEntries];
    entry.length = static_cast<uint8_t>(word.size());
    entry.n_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.word, word.data(), word.size());
    std::memcpy(entry.ids, ids.data(), ids.size_bytes());
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 16;
  static constexpr size_t kLongestWord = 30, kMaxIds = 8;

  struct alignas(64) Entry {
    uint8_t length = 0, n_ids = 0;
    char word[kLongestWord];
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Entry) == 64, "one cache line a word");

  std::vector<Entry> entries_;
};

}  // namespace octet
