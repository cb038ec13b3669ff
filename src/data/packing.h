// Whole documents in rows of a fixed length.
//
// A document of n tokens takes n - 1 places of a row, for its last token is a label alone. One that
// does not fit into a row is dropped, cut or split, as asked, and counted. Documents of which no
// token is trained are dropped and counted as well.
//
// First fit: of a window of kPackWindow documents in the order of the epoch, each goes into the
// first row of the window that has room. The rows of an epoch are a function of the documents'
// lengths, the order and the options.
//
// Buckets: rows of one document each come in a few lengths, and the rows of a step in one. Of the
// documents in the order of the epoch, those of a length make a step as soon as there are enough
// of them; what is left at the end makes steps of mixed lengths, which are as long as the longest.
// A step that the epoch before began is completed by the first documents. So the rows of a step
// depend on how many it has, and not on how it is cut into micro-batches and ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/rows.h"
#include "data/token_stream.h"

namespace octet {

inline constexpr int64_t kPackWindow = 4096;

enum class TooLong {
  drop,
  truncate,  // its start alone
  split,     // into rows of its own and a rest; the parts do not see each other
};
constexpr std::string_view enum_name(TooLong too_long) {
  constexpr std::string_view names[] = {"drop", "truncate", "split"};
  return names[static_cast<int>(too_long)];
}
constexpr int enum_count(TooLong) {
  return 3;
}

enum class Packing {
  single,     // a document a row
  first_fit,  // as many as fit
};

struct PackOptions {
  int64_t seq = 0;
  TooLong too_long = TooLong::drop;
  Packing packing = Packing::first_fit;
  bool shuffles = true;
  bool tells_starts = true;  // Batch::doc_starts
  uint64_t seed = 0;
  int64_t buckets = 1;    // lengths of rows, with Packing::single
  int64_t step_rows = 1;  // rows of a step, with several buckets
};

// A document, or a part of one.
struct Piece {
  int64_t first = 0;  // in the stream
  int64_t n = 0;      // tokens
  int64_t places() const { return n - 1; }
};

struct PackReport {
  int64_t n_documents = 0, n_pieces = 0;
  int64_t n_too_long = 0;        // documents
  int64_t n_lost_tokens = 0;     // of them, that are in no piece
  int64_t n_without_labels = 0;  // pieces that are left out
  int64_t longest = 0;           // tokens of a document
  int64_t n_rows = 0;            // of the first epoch
  int64_t n_used = 0;            // of them that hold a token
  int64_t n_padded_tokens = 0;   // of the first epoch too, with padding
  double padding_share() const {
    return n_padded_tokens > 0
               ? 1 - static_cast<double>(n_used) / static_cast<double>(n_padded_tokens)
               : 0;
  }
};

// The pieces of all documents of a stream, which is read once.
struct Pieces {
  std::vector<Piece> all;
  PackReport report;               // but its rows
  std::vector<int64_t> lengths;    // of rows, ascending; {seq} without buckets
  std::vector<StreamPart> parts;   // of the stream
  std::vector<int64_t> part_ends;  // pieces of each
  // Of the row that this piece has for itself.
  int64_t row_length(int64_t piece) const;
};
Pieces find_pieces(const TokenStream& stream, const PackOptions& options);

// Rows as lists of pieces: row i holds order[first[i]] to order[first[i + 1] - 1].
struct PackedRows {
  std::vector<int64_t> order;
  std::vector<int64_t> first = {0};
  int64_t n_rows() const { return static_cast<int64_t>(first.size()) - 1; }
  std::span<const int64_t> row(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    const auto begin = static_cast<size_t>(first[at]), end = static_cast<size_t>(first[at + 1]);
    return std::span(order).subspan(begin, end - begin);
  }
};
PackedRows pack_epoch(const Pieces& pieces, const PackOptions& options, uint64_t epoch);
// The pieces' report with these rows.
PackReport report_with(const Pieces& pieces, const PackedRows& rows, const PackOptions& options);

// The at most `n` lengths, multiples of 16 or `seq`, with which pieces that have a row each are
// padded least. None where there are no pieces.
std::vector<int64_t> row_lengths(std::span<const Piece> pieces, int64_t seq, int64_t n);

// Writes the pieces of a row, side by side, and padding behind them, which is a document of its
// own.
void write_row(const TokenStream& stream, const Pieces& pieces, std::span<const int64_t> row,
               int64_t index, Batch& batch);

}  // namespace octet
