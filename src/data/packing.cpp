#include "data/packing.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/integer.h"
#include "data/rows.h"

namespace octet {
namespace {

constexpr int64_t kLengthStep = 16;  // GEMMs of eight bits want rows by 16

// The number of rows, of so many tokens each, that are at most i steps long, up to the longest.
std::vector<int64_t> rows_up_to(std::span<const int64_t> places) {
  int64_t longest = 0;
  for (const int64_t n_places : places) longest = std::max(longest, n_places);
  std::vector<int64_t> n(static_cast<size_t>(ceil_div(longest, kLengthStep)) + 1);
  for (const int64_t n_places : places) ++n[static_cast<size_t>(ceil_div(n_places, kLengthStep))];
  for (size_t i = 1; i < n.size(); ++i) n[i] += n[i - 1];
  return n;
}

// The ends, in steps, of at most n buckets with the least sum over rows of their lengths, over all
// ways to end k buckets: cost[k][end] = min over begin < end of cost[k - 1][begin] +
// rows(begin, end] x length(end).
std::vector<size_t> bucket_ends(const std::vector<int64_t>& rows_up_to,
                                const std::function<int64_t(size_t end)>& length, int64_t n) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const size_t n_ends = rows_up_to.size() - 1;
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
  std::vector<size_t> ends;
  size_t end = n_ends;
  for (size_t k = begins.size(); k-- > 0;) {
    if (begins[k][end] == end) continue;
    ends.push_back(end);
    end = begins[k][end];
  }
  std::ranges::reverse(ends);
  return ends;
}

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
  // Rows that make no step of one length, the shortest first.
  for (const std::vector<int64_t>& bucket : waiting) write(bucket);
  return packed;
}

std::vector<int64_t> row_lengths(std::span<const int64_t> places, int64_t seq, int64_t n) {
  CHECK(seq >= 1 && n >= 1);
  const auto length = [&](size_t end) {
    return std::min(static_cast<int64_t>(end) * kLengthStep, seq);
  };
  std::vector<int64_t> lengths;
  for (const size_t end : bucket_ends(rows_up_to(places), length, n))
    lengths.push_back(length(end));
  return lengths;
}

std::vector<RowSize> batch_sizes(std::span<const TextLengths> rows, const RowSize& full,
                                 int64_t n) {
  CHECK(full.rows >= 1 && full.seq >= 1 && full.source >= 1 && n >= 1);
  std::vector<int64_t> longer;  // side of each row
  for (const TextLengths& row : rows) {
    CHECK(row.target <= full.seq && row.source <= full.source);
    longer.push_back(std::max(row.target, row.source));
  }
  const std::vector<int64_t> n_rows = rows_up_to(longer);
  // Up to each end, so that sizes ascend.
  std::vector<TextLengths> longest(n_rows.size());
  for (const TextLengths& row : rows) {
    TextLengths& own =
        longest[static_cast<size_t>(ceil_div(std::max(row.target, row.source), kLengthStep))];
    own = {std::max(own.target, row.target), std::max(own.source, row.source)};
  }
  for (size_t i = 1; i < longest.size(); ++i) {
    longest[i] = {std::max(longest[i].target, longest[i - 1].target),
                  std::max(longest[i].source, longest[i - 1].source)};
  }
  const auto padded = [](int64_t length, int64_t most) {
    return std::min(ceil_div(std::max<int64_t>(length, 1), kLengthStep) * kLengthStep, most);
  };
  const auto size = [&](size_t end) {
    const int64_t seq = padded(longest[end].target, full.seq),
                  source = padded(longest[end].source, full.source);
    return RowSize{.rows = std::min(full.rows * full.seq / seq, full.rows * full.source / source),
                   .seq = seq,
                   .source = source};
  };
  std::vector<RowSize> sizes;
  const auto n_tokens = [&](size_t end) { return size(end).seq + size(end).source; };
  for (const size_t end : bucket_ends(n_rows, n_tokens, n)) sizes.push_back(size(end));
  return sizes;
}

PackedRows in_batches(std::span<const int64_t> order, const OfSample& size,
                      std::span<const RowSize> sizes, int64_t n_batches) {
  PackedRows packed;
  const auto write = [&](std::span<const int64_t> held, size_t at) {
    packed.steps.push_back({.first = packed.n_rows(), .n_held = std::ssize(held), .size = at});
    const int64_t n = sizes[at].rows;
    for (int64_t row = 0; row < n * n_batches; ++row) {
      const int64_t from = filled_row(row, row / n * n, std::ssize(held));
      packed.add_row(held.subspan(static_cast<size_t>(from), 1));
    }
  };
  const auto step_rows = [&](size_t at) { return sizes[at].rows * n_batches; };
  std::vector<std::vector<int64_t>> waiting(sizes.size());
  for (const int64_t sample : order) {
    const auto at = static_cast<size_t>(size(sample));
    waiting[at].push_back(sample);
    if (std::ssize(waiting[at]) < step_rows(at)) continue;
    write(waiting[at], at);
    waiting[at].clear();
  }
  // Rows that make no step of one size, the shortest first.
  std::vector<int64_t> left;
  size_t longest = 0;
  for (size_t at = 0; at < sizes.size(); ++at) {
    if (waiting[at].empty()) continue;
    left.insert(left.end(), waiting[at].begin(), waiting[at].end());
    longest = at;
    while (std::ssize(left) >= step_rows(at)) {
      write(std::span(left).first(static_cast<size_t>(step_rows(at))), at);
      left.erase(left.begin(), left.begin() + step_rows(at));
    }
  }
  if (!left.empty()) write(left, longest);
  return packed;
}

}  // namespace octet
