// Batches of windows over a token stream, for training and for evaluation.
//
// A window is `seq` input tokens from some position and, as labels, the token after each. Windows
// of a pass start at 0, seq, 2 seq, ...: every token but the first is a label exactly once a pass.
// The last window may be shorter: its rest is token 0 with label -1 (ignored).
//
// Everything is a function of (stream, options, number of windows drawn): no hidden state, so that
// a resumed run draws the same batches, and so does any cutting into batches. Random choices are
// Philox words keyed by the seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/mixture.h"
#include "data/rows.h"
#include "data/token_stream.h"

namespace octet {

enum class WindowOrder {
  sequential,  // as they lie
  shuffled,    // each pass (epoch) in its own permutation: every window once
  random,      // independent uniform starts over the stream; a pass has no meaning
};
constexpr std::string_view enum_name(WindowOrder order) {
  constexpr std::string_view names[] = {"sequential", "shuffle", "random"};
  return names[static_cast<int>(order)];
}
constexpr int enum_count(WindowOrder) {
  return 3;
}

enum class DocumentBoundaries {
  ignore,       // documents run on into each other
  mask_labels,  // the first token of a document is no label
  isolate,      // nor does a token see another document, and positions begin anew
};
constexpr std::string_view enum_name(DocumentBoundaries boundaries) {
  constexpr std::string_view names[] = {"ignore", "mask_labels", "isolate"};
  return names[static_cast<int>(boundaries)];
}
constexpr int enum_count(DocumentBoundaries) {
  return 3;
}

struct LoaderOptions {
  int64_t seq = 0;
  WindowOrder order = WindowOrder::shuffled;
  DocumentBoundaries boundaries = DocumentBoundaries::ignore;
  uint64_t seed = 0;
};

class Loader : public RowLoader {
 public:
  // Throws Error{bad_data} when the stream holds fewer than 2 tokens.
  Loader(TokenStream stream, const LoaderOptions& options);

  Batch next(int64_t batch);
  Batch peek(int64_t skip, int64_t batch) const override;
  // Reads the windows only where documents' boundaries decide.
  RowCounts count(int64_t n_windows) const override;
  int64_t count_labels(int64_t n_windows) const { return count(n_windows).n_labels(); }
  void advance(int64_t n_windows) override { rows_consumed_ += n_windows; }

  int64_t n_windows() const { return n_windows_; }  // of one pass
  int64_t epoch() const override { return rows_consumed_ / n_windows_; }
  int64_t rows_of_epoch(int64_t) const override { return n_windows_; }
  int64_t rows_consumed() const override { return rows_consumed_; }

  LoaderState state() const override;
  std::unique_ptr<RowLoader> copy() const override { return std::make_unique<Loader>(*this); }
  void restore(const LoaderState& state) override;

 private:
  int64_t window_start(int64_t drawn) const;

  TokenStream stream_;
  LoaderOptions options_;
  int64_t n_windows_ = 0;
  Mixture mixture_;
  uint64_t identity_ = 0;  // of the stream
  int64_t rows_consumed_ = 0;
};

// The first `max_labels` predictions of a stream (fewer when it is shorter), in consecutive
// windows: the same for every run. Rows after the last window are all ignored.
class EvalWindows : public EvalRows {
 public:
  EvalWindows(TokenStream stream, int64_t seq, int64_t max_labels,
              DocumentBoundaries boundaries = DocumentBoundaries::ignore);
  int64_t n_labels() const { return n_labels_; }
  int64_t n_windows() const;
  int64_t n_rows() const override { return n_windows(); }
  Batch at(int64_t first_window, int64_t batch) const override;

 private:
  TokenStream stream_;
  int64_t seq_, n_labels_;
  DocumentBoundaries boundaries_;
};

}  // namespace octet
