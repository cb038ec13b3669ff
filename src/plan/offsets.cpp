#include "plan/offsets.h"

#include <algorithm>

#include "base/error.h"

namespace octet {
namespace {

bool live_together(const Buffer& a, const Buffer& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

}  // namespace

int64_t add_bytes(int64_t a, int64_t b, std::string_view what) {
  constexpr int64_t kMost = int64_t{1} << 60;
  if (b < 0 || b > kMost - a) {
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
  std::vector<int> placed;  // by offset
  int64_t arena = 0;
  for (const int index : order) {
    Buffer& buffer = buffers[static_cast<size_t>(index)];
    const int64_t bytes = align_up(buffer.bytes);
    int64_t offset = 0;
    for (const int other_index : placed) {
      const Buffer& other = buffers[static_cast<size_t>(other_index)];
      if (!live_together(buffer, other)) continue;
      if (offset + bytes <= other.offset) break;
      offset = std::max(offset, other.offset + align_up(other.bytes));
    }
    buffer.offset = offset;
    arena = std::max(arena, add_bytes(offset, bytes, buffer.name));
    const auto at = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [&](int64_t value, int i) { return value < buffers[static_cast<size_t>(i)].offset; });
    placed.insert(at, index);
  }
  return arena;
}

}  // namespace octet
