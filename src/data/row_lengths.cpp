#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/integer.h"
#include "data/packing.h"

namespace octet {
namespace {

constexpr int64_t kLengthStep = 16;  // GEMMs of eight bits want rows by 16

}  // namespace

// Least sum over rows of their lengths, over all ways to end k buckets at a multiple of the step:
// cost[k][end] = min over begin < end of cost[k - 1][begin] + rows(begin, end] x end.
std::vector<int64_t> row_lengths(std::span<const Piece> pieces, int64_t seq, int64_t n) {
  CHECK(seq >= 1 && n >= 1);
  int64_t longest = 0;
  for (const Piece& piece : pieces) longest = std::max(longest, piece.places());
  const auto n_ends = static_cast<size_t>(ceil_div(longest, kLengthStep));
  std::vector<int64_t> rows_up_to(n_ends + 1);
  for (const Piece& piece : pieces)
    ++rows_up_to[static_cast<size_t>(ceil_div(piece.places(), kLengthStep))];
  for (size_t i = 1; i <= n_ends; ++i) rows_up_to[i] += rows_up_to[i - 1];
  const auto length = [&](size_t end) {
    return std::min(static_cast<int64_t>(end) * kLengthStep, seq);
  };
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> cost(n_ends + 1, kNone);
  cost[0] = 0;
  std::vector<std::vector<size_t>> begins;  // of the last bucket, by number of buckets and end
  for (int64_t k = 0; k < n; ++k) {
    std::vector<int64_t> next = cost;
    std::vector<size_t>& begin_of = begins.emplace_back(n_ends + 1);
    for (size_t end = 0; end <= n_ends; ++end) begin_of[end] = end;  // this bucket is not needed
    for (size_t end = 1; end <= n_ends; ++end) {
      for (size_t begin = 0; begin < end; ++begin) {
        if (cost[begin] == kNone) continue;
        const int64_t sum = cost[begin] + (rows_up_to[end] - rows_up_to[begin]) * length(end);
        if (sum < next[end]) next[end] = sum, begin_of[end] = begin;
      }
    }
    cost = std::move(next);
  }
  std::vector<int64_t> lengths;
  size_t end = n_ends;
  for (size_t k = begins.size(); k-- > 0;) {
    if (begins[k][end] == end) continue;
    lengths.push_back(length(end));
    end = begins[k][end];
  }
  std::ranges::reverse(lengths);
  return lengths;
}

}  // namespace octet
