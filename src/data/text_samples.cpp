#include "data/text_samples.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/integer.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace octet {
namespace {

constexpr uint64_t kRandomStream = name_hash("data.random_windows");

// The documents of a stream as they go by: their tokens, and the labels among each `seq` of them.
class PieceFinder {
 public:
  PieceFinder(const RowOptions& options, Pieces& pieces) : options_(options), pieces_(pieces) {}

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
    ++pieces_.n_documents;
    pieces_.longest = std::max(pieces_.longest, n);
    size_t n_parts = std::max<size_t>(n_labels_.size(), 1);
    if (n_parts > 1) {
      ++pieces_.n_too_long;
      if (options_.too_long == TooLong::drop) n_parts = 0;
      if (options_.too_long == TooLong::truncate) n_parts = 1;
      const int64_t n_kept = std::min(n, static_cast<int64_t>(n_parts) * options_.seq + 1);
      pieces_.n_lost_tokens += n_parts == 0 ? n : n - n_kept;
    }
    for (size_t part = 0; part < n_parts; ++part) {
      const int64_t first = static_cast<int64_t>(part) * options_.seq;
      if (n_labels_.empty() || n_labels_[part] == 0) {
        ++pieces_.n_without_labels;
        continue;
      }
      pieces_.all.push_back(
          {begin_ + first, std::min(n - first, options_.seq + 1), pieces_.n_documents - 1});
    }
  }

 private:
  const RowOptions& options_;
  Pieces& pieces_;
  int64_t begin_ = 0;
  std::vector<int64_t> n_labels_;
};

class TextSamples : public RowSource {
 public:
  // Documents where there are pieces.
  TextSamples(TokenStream stream, const RowOptions& options, std::optional<Pieces> pieces)
      : stream_(std::move(stream)),
        options_(options),
        pieces_(std::move(pieces)),
        inputs_{tokens_input(), token_labels_input()} {
    if (options.boundaries == DocumentBoundaries::isolate) inputs_.push_back(doc_starts_input());
  }

  int64_t n_samples() const override {
    if (pieces_) return std::ssize(pieces_->all);
    return stream_.n_tokens() < 2 ? 0 : (stream_.n_tokens() - 2) / options_.seq + 1;
  }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return true; }
  uint64_t identity() const override { return stream_.identity(); }
  int64_t places(int64_t sample) const override {
    return pieces_ ? pieces_->all[static_cast<size_t>(sample)].places() : options_.seq;
  }

  // A window is of the part that it begins in.
  std::vector<StreamPart> parts() const override {
    std::vector<StreamPart> parts = stream_.parts();
    for (StreamPart& part : parts) {
      const auto end = [&] {
        return std::ranges::lower_bound(pieces_->all, part.end, {}, &Piece::first);
      };
      part.end = pieces_ ? end() - pieces_->all.begin()
                         : std::min(ceil_div(part.end, options_.seq), n_samples());
    }
    return parts;
  }

  LoaderState state() const override {
    LoaderState state = {{"tokens", std::to_string(stream_.n_tokens())},
                         {"boundaries", std::string(enum_name(options_.boundaries))}};
    if (pieces_) state["too_long"] = enum_name(options_.too_long);
    return state;
  }

  std::string description(const std::string& rows) const override {
    std::string text = fmt::format("{} documents in {}", pieces_->n_documents, rows);
    if (pieces_->n_too_long > 0) {
      text += fmt::format("; {} do not fit ({}: {} tokens lost)", pieces_->n_too_long,
                          enum_name(options_.too_long), pieces_->n_lost_tokens);
    }
    if (pieces_->n_without_labels > 0)
      text += fmt::format("; {} parts hold nothing to train", pieces_->n_without_labels);
    return text;
  }

  std::optional<int64_t> n_counted(int64_t sample, const RowCell& where,
                                   const InputSpec&) const override {
    if (pieces_ || options_.boundaries != DocumentBoundaries::ignore) return std::nullopt;
    return piece_of(sample, where).places();
  }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    const Piece piece = piece_of(sample, where);
    const Tokens read = this->read(piece);
    // The last token of a window that is shorter is an input as well, but in evaluations.
    const int64_t n_held = pieces_ || where.use == RowUse::evaluation
                               ? piece.places()
                               : std::min(piece.n, options_.seq);
    CHECK(where.column + n_held <= to.seq);
    const int64_t at = where.row * to.seq + where.column;
    std::copy_n(read.ids.begin(), n_held, to.ints("tokens").begin() + at);
    std::ranges::copy(read.labels, to.ints("labels").begin() + at);
    to.lengths[static_cast<size_t>(where.row)] = where.column + n_held;
    if (options_.boundaries != DocumentBoundaries::isolate) return;
    std::vector<int32_t>& starts = to.ints("doc_starts");
    int64_t begin = where.column;
    for (int64_t i = 0; i < to.seq - where.column; ++i) {
      const bool begins = i < piece.n && (read.flags[static_cast<size_t>(i)] & kDocumentStart) != 0;
      if (begins || (pieces_ && i == n_held)) begin = where.column + i;
      starts[static_cast<size_t>(at + i)] = static_cast<int32_t>(begin);
    }
  }

 private:
  struct Tokens {
    std::vector<int32_t> ids, labels;
    std::vector<uint8_t> flags;
  };

  Piece piece_of(int64_t sample, const RowCell& where) const {
    if (pieces_) return pieces_->all[static_cast<size_t>(sample)];
    int64_t first = sample * options_.seq;
    if (options_.order == WindowOrder::random && where.use == RowUse::training) {
      const int64_t n_starts = std::max<int64_t>(1, stream_.n_tokens() - options_.seq);
      first =
          uniform_index(n_starts, where.seed, kRandomStream, static_cast<uint64_t>(where.drawn));
    }
    return {first, std::min(options_.seq + 1, stream_.n_tokens() - first)};
  }

  Tokens read(const Piece& piece) const {
    const auto n = static_cast<size_t>(piece.n);
    Tokens result{std::vector<int32_t>(n), std::vector<int32_t>(n - 1), std::vector<uint8_t>(n)};
    stream_.read(piece.first, result.ids, result.flags);
    const bool masks_starts = options_.boundaries != DocumentBoundaries::ignore;
    for (size_t i = 0; i + 1 < n; ++i) {
      const uint8_t flags = result.flags[i + 1];
      const bool is_masked =
          (flags & kNotTrained) != 0 || (masks_starts && (flags & kDocumentStart) != 0);
      result.labels[i] = is_masked ? kIgnoredLabel : result.ids[i + 1];
    }
    return result;
  }

  TokenStream stream_;
  RowOptions options_;
  std::optional<Pieces> pieces_;
  std::vector<InputSpec> inputs_;
};

// How many of the pieces are read until they hold so many tokens.
size_t n_evaluated(const Pieces& pieces, int64_t max_tokens) {
  int64_t n_tokens = 0;
  size_t n = 0;
  while (n < pieces.all.size() && n_tokens < max_tokens) n_tokens += pieces.all[n++].n;
  return n;
}

}  // namespace

Pieces find_pieces(const TokenStream& stream, const RowOptions& options) {
  CHECK(options.seq >= 1);
  Pieces pieces;
  PieceFinder finder(options, pieces);
  for_each_token(stream, [&](int64_t at, int32_t, uint8_t flags) {
    finder.add(at, flags);
    return true;
  });
  finder.finish(stream.n_tokens());
  return pieces;
}

std::shared_ptr<const RowSource> training_text(const TokenStream& stream,
                                               const RowOptions& options) {
  if (options.packing == Packing::none) {
    if (stream.n_tokens() < 2) {
      throw Error(ErrorCode::bad_data, "[data] expected a stream of at least 2 tokens, got {}",
                  stream.n_tokens());
    }
    return std::make_shared<TextSamples>(stream, options, std::nullopt);
  }
  Pieces pieces = find_pieces(stream, options);
  if (pieces.all.empty()) {
    throw Error(ErrorCode::bad_data,
                "[data] expected documents of at most {} tokens with a token to train on, got {} "
                "documents, {} of them longer (data.too_long)",
                options.seq + 1, pieces.n_documents, pieces.n_too_long);
  }
  return document_samples(stream, options, std::move(pieces));
}

std::shared_ptr<const RowSource> document_samples(const TokenStream& stream,
                                                  const RowOptions& options, Pieces pieces) {
  return std::make_shared<TextSamples>(stream, options, std::move(pieces));
}

std::shared_ptr<const RowSource> evaluation_text(const TokenStream& stream,
                                                 const RowOptions& options, int64_t max_tokens) {
  const TokenStream start = stream.slice(0, std::min(stream.n_tokens(), max_tokens));
  if (options.packing == Packing::none)
    return std::make_shared<TextSamples>(start, options, std::nullopt);
  Pieces pieces = find_pieces(stream, options);
  pieces.all.resize(n_evaluated(pieces, max_tokens));
  std::ranges::stable_sort(pieces.all, {}, [&](const Piece& piece) {
    return std::ranges::lower_bound(options.lengths, piece.places()) - options.lengths.begin();
  });
  return document_samples(stream.slice(0, stream.n_tokens()), options, std::move(pieces));
}

EvaluatedDocuments evaluated_documents(const TokenStream& stream, const RowOptions& options,
                                       int64_t max_tokens) {
  const Pieces pieces = find_pieces(stream, options);
  const size_t n = n_evaluated(pieces, max_tokens);
  EvaluatedDocuments result{.n_all = pieces.n_documents};
  for (size_t i = 0; i < n; ++i)
    result.n += i == 0 || pieces.all[i].document != pieces.all[i - 1].document ? 1 : 0;
  result.is_all =
      n == pieces.all.size() && pieces.n_lost_tokens == 0 && pieces.n_without_labels == 0;
  return result;
}

}  // namespace octet
