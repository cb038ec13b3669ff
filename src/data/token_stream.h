// Tokens by position, from any number of sources, read when needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "text/tokenizer.h"

namespace octet {

// Facts of a token beside its id.
enum TokenFlag : uint8_t {
  kDocumentStart = 1,
  kNotTrained = 2,  // it is no label: what a user said
};

// One run of documents: a token shard, or text in memory. Immutable; may be read from several
// threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t n_tokens() const = 0;
  // Fills tokens[i] with token first + i, and flags[i] with its TokenFlags. Both spans have the
  // same length, within the source.
  virtual void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const = 0;
  virtual uint64_t identity() const = 0;  // of the content, whatever its file is called
};

// Sources of one weight, up to where others begin: how often an epoch reads them.
struct StreamPart {
  int64_t end = 0;  // token
  double weight = 1;
};

// Sources one after the other, or a part of that. A small value: copies share the sources.
class TokenStream {
 public:
  TokenStream() = default;
  explicit TokenStream(std::vector<std::shared_ptr<const TokenSource>> sources);

  int64_t n_tokens() const { return end_ - begin_; }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const;
  TokenStream slice(int64_t begin, int64_t end) const;
  uint64_t identity() const;  // of all sources and of the part
  // Streams one after the other, each with the weight beside it.
  static TokenStream weighted(std::span<const std::pair<TokenStream, double>> streams);
  const std::vector<StreamPart>& parts() const { return parts_; }  // empty: all of weight 1

 private:
  std::vector<std::shared_ptr<const TokenSource>> sources_;
  std::vector<int64_t> first_token_;  // of each source; then the total
  int64_t begin_ = 0, end_ = 0;
  std::vector<StreamPart> parts_;
};

// Calls f(position, id, flags) for each token in order, until f returns false. Holds a piece of the
// stream at a time.
template <typename F>
void for_each_token(const TokenStream& stream, F&& f) {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> flags;
  for (int64_t first = 0; first < stream.n_tokens(); first += kPiece) {
    const auto n = static_cast<size_t>(std::min(kPiece, stream.n_tokens() - first));
    tokens.resize(n);
    flags.resize(n);
    stream.read(first, tokens, flags);
    for (size_t i = 0; i < n; ++i) {
      if (!f(first + static_cast<int64_t>(i), tokens[i], flags[i])) return;
    }
  }
}

// For sources: the flags of the tokens from `first` on, where documents start at `starts` (rising).
void flag_starts(std::span<const int64_t> starts, int64_t first, std::span<uint8_t> flags);

// The end of a document of a tokenizer that begins none.
enum class DocumentEnd : uint8_t {
  eos,   // its eos: a model learns where documents end
  none,  // nothing that is not in the text
};

// Appends a document's tokens: bos (or, where the tokenizer has none, a final eos) and the text; a
// text that begins with the bos gets no second one.
void append_document(const Tokenizer& tokenizer, std::string_view text,
                     const EncodeTextOptions& options, std::vector<int32_t>& ids,
                     DocumentEnd end = DocumentEnd::eos);

// The narrowest of 1, 2 and 4 bytes that hold the tokens of a vocabulary.
int token_bytes(int64_t vocab);
// Token ids in `width` bytes each, and back; `narrow` may be the upper part of the tokens' memory.
void append_narrow(std::span<const int32_t> ids, size_t width, std::vector<std::byte>& bytes);
void widen_tokens(const std::byte* narrow, size_t width, std::span<int32_t> tokens);

// The documents of one source in memory, in the narrowest of 1, 2, 4 bytes a token that the
// vocabulary allows.
class TextBuilder {
 public:
  explicit TextBuilder(const Tokenizer& tokenizer, DocumentEnd end = DocumentEnd::eos);
  // Adds one document as append_document does. Empty text adds nothing.
  void add_document(std::string_view text);
  std::shared_ptr<const TokenSource> build();

 private:
  const Tokenizer& tokenizer_;
  DocumentEnd end_;
  std::vector<std::byte> tokens_;
  std::vector<int64_t> starts_;
  size_t width_;
};

}  // namespace octet
