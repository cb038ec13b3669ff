#include "data/packing.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/integer.h"

namespace octet {
namespace {

constexpr int64_t kLengthStep = 16;  // GEMMs of eight bits want rows by 16

}  // namespace

void PackedRows::add_row(std::span<const int64_t> samples) {
  order.insert(order.end(), samples.begin(), samples.end());
  first.push_back(std::ssize(order));
}

PackedRows first_fit(std::span<const int64_t> order, const OfSample& places, int64_t seq) {
  PackedRows packed;
  packed.order.reserve(order.size());
  std::vector<std::vector<int64_t>> rows;
  std::vector<int64_t> room;  // of each
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t n = places(order[i]);
    size_t row = 0;
    while (row < rows.size() && room[row] < n) ++row;
    if (row == rows.size()) {
      rows.emplace_back();
      room.push_back(seq);
    }
    rows[row].push_back(order[i]);
    room[row] -= n;
    if ((i + 1) % kPackWindow != 0 && i + 1 != order.size()) continue;
    for (const std::vector<int64_t>& samples : rows) packed.add_row(samples);
    rows.clear();
    room.clear();
  }
  return packed;
}

PackedRows in_steps(std::span<const int64_t> order, const OfSample& length, const Steps& steps) {
  PackedRows packed;
  const auto write = [&](std::span<const int64_t> samples) {
    for (const int64_t& sample : samples) packed.add_row(std::span(&sample, 1));
  };
  const int64_t n_missing = std::min((steps.rows - steps.n_begun) % steps.rows, std::ssize(order));
  write(order.first(static_cast<size_t>(n_missing)));
  std::vector<std::vector<int64_t>> waiting(steps.lengths.size());
  for (const int64_t sample : order.subspan(static_cast<size_t>(n_missing))) {
    const auto at = std::ranges::find(steps.lengths, length(sample)) - steps.lengths.begin();
    std::vector<int64_t>& bucket = waiting[static_cast<size_t>(at)];
    bucket.push_back(sample);
    if (std::ssize(bucket) < steps.rows) continue;
    write(bucket);
    bucket.clear();
  }
  // Those that make no step of one length, the shortest first.
  for (const std::vector<int64_t>& bucket : waiting) write(bucket);
  return packed;
}

// Least sum over rows of their lengths, over all ways to end k buckets at a multiple of the step:
// cost[k][end] = min over begin < end of cost[k - 1][begin] + rows(begin, end] x end.
std::vector<int64_t> row_lengths(std::span<const int64_t> places, int64_t seq, int64_t n) {
  CHECK(seq >= 1 && n >= 1);
  int64_t longest = 0;
  for (const int64_t n_places : places) longest = std::max(longest, n_places);
  const auto n_ends = static_cast<size_t>(ceil_div(longest, kLengthStep));
  std::vector<int64_t> rows_up_to(n_ends + 1);
  for (const int64_t n_places : places)
    ++rows_up_to[static_cast<size_t>(ceil_div(n_places, kLengthStep))];
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
