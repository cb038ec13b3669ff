// Texts of a model whose layers have states (nn/shape.h, has_state) beside a KV cache: rows of keys
// and values behind a token are written over, but a state of what came before does not go back. The
// states of each entry are kept where its last fill ended, and those that all entries were given
// (copy_prefix); what a text that goes back needs besides is read again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/inference.h"

namespace octet {

class TextStates {
 public:
  // The model has functions over a cache of this size, and outlives it.
  TextStates(Inference& model, const BatchSize& size);

  // Puts the entry's states before token `first`, which is at most where it ends: returns how many
  // tokens of it they are behind, and the tokens from there to `first`, which are to be read next.
  struct Again {
    int64_t first = 0;
    std::vector<int32_t> tokens;
  };
  Again go_back(int64_t entry, int64_t first);
  // The entry has read these, too.
  void read(int64_t entry, std::span<const int32_t> tokens);
  // Keeps the entry's states as they are now.
  void keep(int64_t entry);
  // Every entry is what entry 0 is; its states are kept for all.
  void share();
  // Every entry is what from[entry] was.
  void take_over(std::span<const int64_t> from);

  int64_t n_held(int64_t entry) const { return std::ssize(texts_[static_cast<size_t>(entry)]); }

 private:
  Inference::CacheEntry at(int64_t entry) const { return {size_, entry}; }

  Inference& model_;
  BatchSize size_;
  std::vector<std::vector<int32_t>> texts_;  // by entry
  std::vector<int64_t> kept_;                // tokens behind which an entry's kept states are
  std::vector<int32_t> shared_;              // tokens of the states that were kept for all
};

}  // namespace octet
