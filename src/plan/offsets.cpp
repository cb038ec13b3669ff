#include "plan/offsets.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/error.h"

namespace octet {
namespace {

// Disjoint ranges of bytes, by their beginnings; ranges that touch are one.
class ByteRanges {
 public:
  void insert(int64_t begin, int64_t end) {
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second >= begin) --it;
    while (it != ranges_.end() && it->first <= end) {
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = ranges_.erase(it);
    }
    ranges_.emplace_hint(it, begin, end);
  }

  // The first byte from `begin` on behind which no range begins within n_bytes.
  int64_t first_gap(int64_t begin, int64_t n_bytes) const {
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second > begin) begin = std::prev(it)->second;
    for (; it != ranges_.end() && begin + n_bytes > it->first; ++it) begin = it->second;
    return begin;
  }

 private:
  std::map<int64_t, int64_t> ranges_;
};

struct Steps {
  int first = 0, last = 0;  // both included
};

// Bytes that are taken, by step: a segment tree over the steps. What lives through all steps of a
// node is in its `whole`, what lives at any of them in its `any`, so that a range of steps asks for
// O(log n) sets, and each set of stacked buffers is few ranges.
class TakenBytes {
 public:
  explicit TakenBytes(int n_steps)
      : n_leaves_(static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(n_steps, 1))))),
        nodes_(static_cast<size_t>(2 * n_leaves_)) {}

  void insert(Steps steps, int64_t begin, int64_t end) {
    visit(1, all(), steps, [&](Node& node, bool covered) {
      node.any.insert(begin, end);
      if (covered) node.whole.insert(begin, end);
    });
  }

  // The lowest offset at which n_bytes are free during all these steps.
  int64_t first_fit(Steps steps, int64_t n_bytes) {
    std::vector<const ByteRanges*> sets;
    visit(1, all(), steps,
          [&](Node& node, bool covered) { sets.push_back(covered ? &node.any : &node.whole); });
    int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const ByteRanges* set : sets) {
        const int64_t next = set->first_gap(offset, n_bytes);
        moved = moved || next != offset;
        offset = next;
      }
    }
    return offset;
  }

 private:
  struct Node {
    ByteRanges whole, any;
  };

  Steps all() const { return {0, n_leaves_ - 1}; }

  // The nodes that cover `steps` together, and on the way those above them; a node stands for
  // `here`.
  template <typename F>
  void visit(int index, Steps here, Steps steps, const F& f) {
    if (steps.last < here.first || here.last < steps.first) return;
    const bool covered = steps.first <= here.first && here.last <= steps.last;
    f(nodes_[index], covered);
    if (covered) return;
    const int middle = here.first + (here.last - here.first) / 2;
    visit(2 * index, {here.first, middle}, steps, f);
    visit(2 * index + 1, {middle + 1, here.last}, steps, f);
  }

  int n_leaves_;
  ById<Node> nodes_;
};

}  // namespace

int64_t add_bytes(int64_t a, int64_t b, std::string_view what) {
  constexpr int64_t kMax = int64_t{1} << 60;
  if (b < 0 || b > kMax - a) {
    throw Error(ErrorCode::device,
                "[memory] expected a plan of at most 2^60 bytes, got more with {}", what);
  }
  return a + b;
}

int64_t assign_offsets(std::vector<Buffer>& buffers, const std::vector<int>& which) {
  std::vector<int> order = which;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return buffers[static_cast<size_t>(a)].bytes > buffers[static_cast<size_t>(b)].bytes;
  });
  // Steps begin at -1, before the first.
  int last_step = 0;
  for (const int index : order)
    last_step = std::max(last_step, buffers[static_cast<size_t>(index)].last_step);
  TakenBytes taken(last_step + 2);
  int64_t arena = 0;
  for (const int index : order) {
    Buffer& buffer = buffers[static_cast<size_t>(index)];
    const Steps steps{buffer.first_step + 1, buffer.last_step + 1};
    const int64_t bytes = align_up(buffer.bytes);
    buffer.offset = bytes > 0 ? taken.first_fit(steps, bytes) : 0;
    arena = std::max(arena, add_bytes(buffer.offset, bytes, buffer.name));
    if (bytes > 0) taken.insert(steps, buffer.offset, buffer.offset + bytes);
  }
  return arena;
}

}  // namespace octet
