// Samples that take a part of a row, in rows.
//
// First fit: of a window of kPackWindow samples in the order of the epoch, each goes into the first
// row of the window that has room.
//
// Buckets: rows of one sample each come in a few lengths, and the rows of a step in one. Of the
// samples in the order of the epoch, those of a length make a step as soon as there are enough of
// them; what is left at the end makes steps of mixed lengths, which are as long as the longest. A
// step that the epoch before began is completed by the first samples. So the rows of a step depend
// on how many it has, and not on how it is cut into micro-batches and ranks.
//
// Batches of about equal tokens: rows of a target and a source come in a few pairs of lengths, and
// of shorter ones a batch has more. As above a step has rows of one size; what is left at the end
// makes steps as long as the longest that they hold, the last of which is filled up. So an epoch is
// whole steps, with each row once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace octet {

inline constexpr int64_t kPackWindow = 4096;

// Consecutive rows: the first n_held hold samples of their own, the others only fill batches up.
struct SizedStep {
  int64_t first = 0, n_held = 0;
  size_t size = 0;  // which of the sizes of a batch its batches have
};

// Rows as lists of samples: row i holds order[first[i]] to order[first[i + 1] - 1].
struct PackedRows {
  std::vector<int64_t> order;
  std::vector<int64_t> first = {0};
  std::vector<SizedStep> steps = {};  // of batches of several sizes alone
  int64_t n_rows() const { return static_cast<int64_t>(first.size()) - 1; }
  std::span<const int64_t> row(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    const auto begin = static_cast<size_t>(first[at]), end = static_cast<size_t>(first[at + 1]);
    return std::span(order).subspan(begin, end - begin);
  }
  void add_row(std::span<const int64_t> samples);
};

using OfSample = std::function<int64_t(int64_t sample)>;
// Into rows of `seq` tokens, of which each sample takes that many places.
PackedRows first_fit(std::span<const int64_t> order, const OfSample& places, int64_t seq);

struct Steps {
  int64_t rows = 1;
  int64_t n_begun = 0;           // rows of the first step that the epoch before holds
  std::vector<int64_t> lengths;  // of rows, ascending
};
PackedRows in_steps(std::span<const int64_t> order, const OfSample& length, const Steps& steps);

// Tokens of a row of two texts, and of the rows of a batch.
struct TextLengths {
  int64_t target = 0, source = 0;
};
struct RowSize {
  int64_t rows = 1, seq = 0, source = 0;
  bool operator==(const RowSize&) const = default;
};

// The at most `n` sizes, multiples of 16 or as long as `full`, with which such rows are padded
// least; both lengths ascend, and a row has the first that holds it. A batch has as many rows as
// keep each side at the tokens of `full` at most. None where there are no rows.
std::vector<RowSize> batch_sizes(std::span<const TextLengths> rows, const RowSize& full, int64_t n);

// Samples, of which `size` says the number in `sizes`, in steps of so many batches. A row that only
// fills up holds a sample of its batch, or of an empty one of the step (filled_row).
PackedRows in_batches(std::span<const int64_t> order, const OfSample& size,
                      std::span<const RowSize> sizes, int64_t n_batches);

// The at most `n` lengths, multiples of 16 or `seq`, with which rows that hold so many tokens each
// are padded least. None where there are no rows.
std::vector<int64_t> row_lengths(std::span<const int64_t> places, int64_t seq, int64_t n);

}  // namespace octet
