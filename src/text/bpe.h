// Byte pair encoding: adjacent tokens are merged, the pair of lowest rank first and of equals the
// leftmost, until no pair is left that has a rank. Source: Sennrich et al., "Neural Machine
// Translation of Rare Words with Subword Units", ACL 2016, as GPT-2's encoder applies it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/vocabulary.h"

namespace octet {

// Working memory of one thread.
struct MergeMemory {
  std::vector<int32_t> next, previous;
  std::vector<uint32_t> ranks;
  std::vector<uint64_t> heap;
};

class BpeMerges {
 public:
  void reserve(size_t n_merges);
  // The pair becomes `merged`. False, and nothing changes, where the pair has a rank already.
  bool add(int32_t left, int32_t right, uint32_t rank, int32_t merged);
  size_t size() const { return n_used_; }

  // In place; n log n for n tokens.
  void merge(std::vector<int32_t>& ids, MergeMemory& memory) const;

 private:
  struct Entry {
    uint64_t pair = kFree;
    uint32_t rank = kNoRank;
    int32_t merged = -1;
  };
  static constexpr uint64_t kFree = UINT64_MAX;
  static constexpr uint32_t kNoRank = UINT32_MAX;

  const Entry& find(int32_t left, int32_t right) const;
  size_t slot_of(uint64_t pair) const;
  void merge_few(std::vector<int32_t>& ids, MergeMemory& memory) const;
  void merge_many(std::vector<int32_t>& ids, MergeMemory& memory) const;

  std::vector<Entry> entries_;  // open addressing; a power of two
  int shift_ = 64;
  size_t n_used_ = 0;
};

// Every way to cut a token into two others: what vocabularies without a list of merges mean, where
// any two neighbours that make a token are a pair. `ranks` is by id; kNotMerged: no merge makes it.
inline constexpr uint32_t kNotMerged = UINT32_MAX;
BpeMerges merges_of_ranks(const Vocabulary& vocabulary, std::span<const uint32_t> ranks);

}  // namespace octet
