#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace octet {
namespace {

constexpr size_t kFewTokens = 64;  // below, looking at every pair is faster than a heap

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void BpeMerges::reserve(size_t n_merges) {
  const size_t n_slots = std::bit_ceil(std::max<size_t>(16, 2 * n_merges));
  if (n_slots <= entries_.size()) return;
  std::vector<Entry> old = std::move(entries_);
  entries_.assign(n_slots, Entry{});
  shift_ = 64 - std::countr_zero(n_slots);
  for (const Entry& entry : old) {
    if (entry.pair != kFree) entries_[slot_of(entry.pair)] = entry;
  }
}

bool BpeMerges::add(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  CHECK(left >= 0 && right >= 0 && rank != kNoRank);
  reserve(n_used_ + 1);
  Entry& entry = entries_[slot_of(pair_key(left, right))];
  if (entry.pair != kFree) return false;
  entry = {pair_key(left, right), rank, merged};
  ++n_used_;
  return true;
}

size_t BpeMerges::slot_of(uint64_t pair) const {
  const size_t mask = entries_.size() - 1;
  size_t slot = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15ull >> shift_;
  while (entries_[slot].pair != kFree && entries_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

const BpeMerges::Entry& BpeMerges::find(int32_t left, int32_t right) const {
  return entries_[slot_of(pair_key(left, right))];
}

void BpeMerges::merge(std::vector<int32_t>& ids, MergeMemory& memory) const {
  if (ids.size() < 2 || entries_.empty()) return;
  if (ids.size() <= kFewTokens) {
    merge_few(ids, memory);
  } else {
    merge_many(ids, memory);
  }
}

void BpeMerges::merge_few(std::vector<int32_t>& ids, MergeMemory& memory) const {
  std::vector<uint32_t>& ranks = memory.ranks;  // of (i, i + 1)
  const auto rank_at = [&](size_t i) {
    return i + 1 < ids.size() ? find(ids[i], ids[i + 1]).rank : kNoRank;
  };
  ranks.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ranks[i] = rank_at(i);
  while (true) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) return;
    const auto at = static_cast<size_t>(best - ranks.begin());
    ids[at] = find(ids[at], ids[at + 1]).merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
    ranks.erase(best + 1);
    ranks[at] = rank_at(at);
    if (at > 0) ranks[at - 1] = rank_at(at - 1);
  }
}

// A heap of (rank, position) over a linked list. An entry is stale when the pair at its position
// has another rank by now.
void BpeMerges::merge_many(std::vector<int32_t>& ids, MergeMemory& memory) const {
  CHECK(ids.size() < INT32_MAX);
  const auto n = static_cast<int32_t>(ids.size());
  auto &next = memory.next, &previous = memory.previous;
  auto& ranks = memory.ranks;
  auto& heap = memory.heap;
  next.resize(ids.size());
  previous.resize(ids.size());
  ranks.assign(ids.size(), kNoRank);
  heap.clear();
  const auto at = [](auto& list, int32_t i) -> auto& {
    return list[static_cast<size_t>(i)];
  };
  const auto set_rank = [&](int32_t left) {
    const int32_t right = at(next, left);
    at(ranks, left) = right < n ? find(at(ids, left), at(ids, right)).rank : kNoRank;
    if (at(ranks, left) == kNoRank) return false;
    heap.push_back(uint64_t{at(ranks, left)} << 32 | static_cast<uint32_t>(left));
    return true;
  };
  for (int32_t i = 0; i < n; ++i) {
    at(next, i) = i + 1;
    at(previous, i) = i - 1;
  }
  for (int32_t i = 0; i < n; ++i) set_rank(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto offer = [&](int32_t left) {
    if (set_rank(left)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto left = static_cast<int32_t>(heap.back() & UINT32_MAX);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    if (at(ranks, left) != rank) continue;
    const int32_t right = at(next, left), after = at(next, right);
    at(ids, left) = find(at(ids, left), at(ids, right)).merged;
    at(ids, right) = -1;
    at(ranks, right) = kNoRank;
    at(next, left) = after;
    if (after < n) at(previous, after) = left;
    offer(left);
    if (at(previous, left) >= 0) offer(at(previous, left));
  }
  std::erase(ids, -1);
}

BpeMerges merges_of_ranks(const Vocabulary& vocabulary, std::span<const uint32_t> ranks) {
  BpeMerges merges;
  merges.reserve(2 * static_cast<size_t>(vocabulary.size()));
  for (int32_t id = 0; id < static_cast<int32_t>(ranks.size()); ++id) {
    const std::string_view token = vocabulary.bytes(id);
    if (ranks[static_cast<size_t>(id)] == kNotMerged || vocabulary.find(token) != id) continue;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const int32_t left = vocabulary.find(token.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = vocabulary.find(token.substr(cut));
      if (right >= 0) merges.add(left, right, ranks[static_cast<size_t>(id)], id);
    }
  }
  return merges;
}

}  // namespace octet
