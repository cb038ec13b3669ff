// The tokens of a tokenizer: bytes by id, and the id of some bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

class Vocabulary {
 public:
  static constexpr int64_t kMaxTokens = int64_t{1} << 21;  // ids are below
  static constexpr size_t kLongestToken = 4096;            // bytes

  // Throws Error{bad_data}, "token ID: ...", for an id out of range or given twice, and for a token
  // that is too long. Of equal tokens find() gives the first that was added.
  void add(int64_t id, std::string_view bytes);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // the highest id, plus 1
  bool has(int64_t id) const {
    return id >= 0 && id < size() && tokens_[static_cast<size_t>(id)].length != kUnused;
  }
  std::string_view bytes(int32_t id) const;     // "" for an id that is not used
  int32_t find(std::string_view bytes) const {  // -1: no such token
    return slots_.empty() ? -1 : slots_[slot_of(bytes)];
  }

 private:
  struct Slice {
    uint32_t offset = 0, length = kUnused;
  };
  static constexpr uint32_t kUnused = UINT32_MAX;

  size_t slot_of(std::string_view bytes) const;
  void grow();

  std::string arena_;
  std::vector<Slice> tokens_;
  std::vector<int32_t> slots_;  // open addressing; a power of two; -1: free
  size_t n_used_ = 0;
};

// Fast, not a defence against chosen keys.
uint64_t hash_bytes(std::string_view bytes);

}  // namespace octet
