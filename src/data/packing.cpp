#include "data/packing.h"

#include <algorithm>

#include "base/error.h"
#include "data/mixture.h"

namespace octet {
namespace {

// The documents of a stream as they go by: their tokens, and the labels among each `seq` of them.
class PieceFinder {
 public:
  PieceFinder(const PackOptions& options, Pieces& pieces) : options_(options), pieces_(pieces) {}

  void add(int64_t at, uint8_t flags) {
    if ((flags & kDocumentStart) != 0 || at == 0) {
      finish(at);
      begin_ = at;
      n_labels_.clear();
      return;
    }
    const auto part = static_cast<size_t>((at - begin_ - 1) / options_.seq);
    if (part >= n_labels_.size()) n_labels_.push_back(0);
    n_labels_[part] += (flags & kNotTrained) == 0 ? 1 : 0;
  }

  void finish(int64_t end) {
    const int64_t n = end - begin_;
    if (n == 0) return;
    PackReport& report = pieces_.report;
    ++report.n_documents;
    report.longest = std::max(report.longest, n);
    size_t n_parts = std::max<size_t>(n_labels_.size(), 1);
    if (n_parts > 1) {
      ++report.n_too_long;
      if (options_.too_long == TooLong::drop) n_parts = 0;
      if (options_.too_long == TooLong::truncate) n_parts = 1;
      const int64_t n_kept = std::min(n, static_cast<int64_t>(n_parts) * options_.seq + 1);
      report.n_lost_tokens += n_parts == 0 ? n : n - n_kept;
    }
    for (size_t part = 0; part < n_parts; ++part) {
      const int64_t first = static_cast<int64_t>(part) * options_.seq;
      if (n_labels_.empty() || n_labels_[part] == 0) {
        ++report.n_without_labels;
        continue;
      }
      pieces_.all.push_back({begin_ + first, std::min(n - first, options_.seq + 1)});
    }
  }

 private:
  const PackOptions& options_;
  Pieces& pieces_;
  int64_t begin_ = 0;
  std::vector<int64_t> n_labels_;
};

// First fit of one window.
class Window {
 public:
  explicit Window(int64_t seq) : seq_(seq) {}

  void add(int64_t piece, int64_t places) {
    size_t row = 0;
    while (row < rows_.size() && room_[row] < places) ++row;
    if (row == rows_.size()) {
      rows_.emplace_back();
      room_.push_back(seq_);
    }
    rows_[row].push_back(piece);
    room_[row] -= places;
  }

  void write(PackedRows& to) {
    for (const std::vector<int64_t>& row : rows_) {
      to.order.insert(to.order.end(), row.begin(), row.end());
      to.first.push_back(static_cast<int64_t>(to.order.size()));
    }
    rows_.clear();
    room_.clear();
  }

 private:
  int64_t seq_;
  std::vector<std::vector<int64_t>> rows_;
  std::vector<int64_t> room_;
};

// Single rows in their order, made into steps of rows of one length.
class Steps {
 public:
  // `n_begun`: rows of the first step that an epoch before this one holds.
  Steps(const Pieces& pieces, int64_t step_rows, int64_t n_begun)
      : pieces_(pieces),
        step_rows_(static_cast<size_t>(step_rows)),
        n_missing_((step_rows - n_begun) % step_rows),
        waiting_(pieces.lengths.size()) {}

  void add(int64_t piece, PackedRows& to) {
    if (n_missing_ > 0) {
      --n_missing_;
      return add_row(piece, to);
    }
    const auto at = std::ranges::find(pieces_.lengths, pieces_.row_length(piece));
    std::vector<int64_t>& bucket = waiting_[static_cast<size_t>(at - pieces_.lengths.begin())];
    bucket.push_back(piece);
    if (bucket.size() == step_rows_) write(bucket, to);
  }

  // Those that make no step of one length, the shortest first.
  void finish(PackedRows& to) {
    for (std::vector<int64_t>& bucket : waiting_) write(bucket, to);
  }

 private:
  static void add_row(int64_t piece, PackedRows& to) {
    to.order.push_back(piece);
    to.first.push_back(static_cast<int64_t>(to.order.size()));
  }
  static void write(std::vector<int64_t>& bucket, PackedRows& to) {
    for (const int64_t piece : bucket) add_row(piece, to);
    bucket.clear();
  }

  const Pieces& pieces_;
  size_t step_rows_;
  int64_t n_missing_;
  std::vector<std::vector<int64_t>> waiting_;
};

Mixture mixture_of(const Pieces& pieces, const PackOptions& options) {
  return Mixture(static_cast<int64_t>(pieces.all.size()), pieces.part_ends, pieces.parts,
                 {.shuffles = options.shuffles, .seed = options.seed});
}

PackedRows bucketed_epoch(const Pieces& pieces, const PackOptions& options, uint64_t epoch) {
  CHECK(options.packing == Packing::single && options.step_rows >= 1);
  const Mixture mixture = mixture_of(pieces, options);
  const int64_t n = mixture.n_items();
  // Each epoch has n rows.
  Steps steps(pieces, options.step_rows, static_cast<int64_t>(epoch) * n % options.step_rows);
  PackedRows rows;
  for (int64_t i = 0; i < n; ++i) steps.add(mixture.item(epoch, i), rows);
  steps.finish(rows);
  return rows;
}

}  // namespace

int64_t Pieces::row_length(int64_t piece) const {
  return *std::ranges::lower_bound(lengths, all[static_cast<size_t>(piece)].places());
}

Pieces find_pieces(const TokenStream& stream, const PackOptions& options) {
  CHECK(options.seq >= 1);
  Pieces pieces;
  PieceFinder finder(options, pieces);
  for_each_token(stream, [&](int64_t at, int32_t, uint8_t flags) {
    finder.add(at, flags);
    return true;
  });
  finder.finish(stream.n_tokens());
  pieces.parts = stream.parts();
  for (const StreamPart& part : pieces.parts) {
    const auto end = std::ranges::lower_bound(pieces.all, part.end, {}, &Piece::first);
    pieces.part_ends.push_back(end - pieces.all.begin());
  }
  pieces.report.n_pieces = static_cast<int64_t>(pieces.all.size());
  pieces.lengths = options.buckets == 1 ? std::vector{options.seq}
                                        : row_lengths(pieces.all, options.seq, options.buckets);
  return pieces;
}

PackedRows pack_epoch(const Pieces& pieces, const PackOptions& options, uint64_t epoch) {
  PackedRows rows;
  if (pieces.all.empty()) return rows;
  if (options.buckets > 1) return bucketed_epoch(pieces, options, epoch);
  const Mixture mixture = mixture_of(pieces, options);
  const int64_t n = mixture.n_items();
  rows.order.reserve(static_cast<size_t>(n));
  const bool is_single = options.packing == Packing::single;
  Window window(options.seq);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t piece = mixture.item(epoch, i);
    window.add(piece, is_single ? options.seq : pieces.all[static_cast<size_t>(piece)].places());
    if (is_single || (i + 1) % kPackWindow == 0) window.write(rows);
  }
  window.write(rows);
  return rows;
}

PackReport report_with(const Pieces& pieces, const PackedRows& rows, const PackOptions& options) {
  PackReport report = pieces.report;
  report.n_rows = rows.n_rows();
  for (const int64_t piece : rows.order)
    report.n_used += pieces.all[static_cast<size_t>(piece)].places();
  report.n_padded_tokens = rows.n_rows() * options.seq;
  if (options.buckets == 1) return report;
  report.n_padded_tokens = 0;
  for (int64_t first = 0; first < rows.n_rows(); first += options.step_rows) {
    const int64_t n = std::min(options.step_rows, rows.n_rows() - first);
    int64_t longest = 0;
    for (int64_t i = first; i < first + n; ++i)
      longest = std::max(longest, pieces.row_length(rows.row(i).front()));
    report.n_padded_tokens += n * longest;
  }
  return report;
}

void write_row(const TokenStream& stream, const Pieces& pieces, std::span<const int64_t> row,
               int64_t index, Batch& batch) {
  const auto at = static_cast<size_t>(index * batch.seq), seq = static_cast<size_t>(batch.seq);
  const bool tells_starts = batch.find("doc_starts") != nullptr;
  std::span<int32_t> doc_starts;
  if (tells_starts) doc_starts = batch.ints("doc_starts");
  std::vector<int32_t>&to = batch.ints("tokens"), &labels = batch.ints("labels");
  size_t column = 0;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> flags;
  for (const int64_t id : row) {
    const Piece& piece = pieces.all[static_cast<size_t>(id)];
    tokens.resize(static_cast<size_t>(piece.n));
    flags.resize(tokens.size());
    stream.read(piece.first, tokens, flags);
    const auto n = static_cast<size_t>(piece.places());
    CHECK(column + n <= seq);
    for (size_t i = 0; i < n; ++i) {
      const bool is_label = (flags[i + 1] & kNotTrained) == 0;
      to[at + column + i] = tokens[i];
      labels[at + column + i] = is_label ? tokens[i + 1] : kIgnoredLabel;
      if (tells_starts) doc_starts[at + column + i] = static_cast<int32_t>(column);
    }
    column += n;
  }
  batch.lengths[static_cast<size_t>(index)] = static_cast<int64_t>(column);
  if (tells_starts)
    std::ranges::fill(doc_starts.subspan(at + column, seq - column), static_cast<int32_t>(column));
}

}  // namespace octet
