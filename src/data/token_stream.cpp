#include "data/token_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace octet {
namespace {

class TextSource : public TokenSource {
 public:
  TextSource(std::vector<std::byte> tokens, std::vector<int64_t> starts, size_t width)
      : tokens_(std::move(tokens)), starts_(std::move(starts)), width_(width) {
    Xxh64 hash;
    hash.update(tokens_);
    hash.update(starts_);
    identity_ = hash.digest();
  }
  int64_t n_tokens() const override { return static_cast<int64_t>(tokens_.size() / width_); }
  uint64_t identity() const override { return identity_; }

  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    widen_tokens(tokens_.data() + static_cast<size_t>(first) * width_, width_, tokens);
    flag_starts(starts_, first, flags);
  }

 private:
  std::vector<std::byte> tokens_;
  std::vector<int64_t> starts_;
  size_t width_;
  uint64_t identity_ = 0;
};

}  // namespace

void flag_starts(std::span<const int64_t> starts, int64_t first, std::span<uint8_t> flags) {
  std::fill(flags.begin(), flags.end(), uint8_t{0});
  const int64_t end = first + static_cast<int64_t>(flags.size());
  for (auto it = std::lower_bound(starts.begin(), starts.end(), first);
       it != starts.end() && *it < end; ++it) {
    flags[static_cast<size_t>(*it - first)] = kDocumentStart;
  }
}

void append_document(const Tokenizer& tokenizer, std::string_view text,
                     const EncodeTextOptions& options, std::vector<int32_t>& ids, DocumentEnd end) {
  const auto first = static_cast<ptrdiff_t>(ids.size());
  if (tokenizer.bos()) ids.push_back(*tokenizer.bos());
  tokenizer.encode(text, options, ids);
  const auto own = ids.begin() + first + 1;  // where the text's own begin
  if (tokenizer.bos() && own < ids.end() && *own == tokenizer.bos()) ids.erase(own);
  if (end == DocumentEnd::eos && !tokenizer.bos() && tokenizer.eos())
    ids.push_back(*tokenizer.eos());
}

int token_bytes(int64_t vocab) {
  return vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
}

void append_narrow(std::span<const int32_t> ids, size_t width, std::vector<std::byte>& bytes) {
  size_t at = bytes.size();
  bytes.resize(at + ids.size() * width);
  for (const int32_t& id : ids) {
    std::memcpy(&bytes[at], &id, width);
    at += width;
  }
}

void widen_tokens(const std::byte* narrow, size_t width, std::span<int32_t> tokens) {
  for (int32_t& token : tokens) {
    uint32_t id = 0;
    std::memcpy(&id, narrow, width);
    token = static_cast<int32_t>(id);
    narrow += width;
  }
}

TextBuilder::TextBuilder(const Tokenizer& tokenizer, DocumentEnd end)
    : tokenizer_(tokenizer),
      end_(end),
      width_(static_cast<size_t>(token_bytes(tokenizer.vocab_size()))) {}

void TextBuilder::add_document(std::string_view text) {
  if (text.empty()) return;
  starts_.push_back(static_cast<int64_t>(tokens_.size() / width_));
  std::vector<int32_t> ids;
  append_document(tokenizer_, text, {}, ids, end_);
  append_narrow(ids, width_, tokens_);
}

std::shared_ptr<const TokenSource> TextBuilder::build() {
  return std::make_shared<TextSource>(std::move(tokens_), std::move(starts_), width_);
}

TokenStream::TokenStream(std::vector<std::shared_ptr<const TokenSource>> sources)
    : sources_(std::move(sources)) {
  first_token_.push_back(0);
  for (const auto& source : sources_)
    first_token_.push_back(first_token_.back() + source->n_tokens());
  end_ = first_token_.back();
}

void TokenStream::read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> starts) const {
  CHECK(tokens.size() == starts.size());
  CHECK(first >= 0 && first + static_cast<int64_t>(tokens.size()) <= n_tokens());
  int64_t at = begin_ + first;
  while (!tokens.empty()) {
    const auto next = std::upper_bound(first_token_.begin(), first_token_.end(), at);
    const size_t i = static_cast<size_t>(next - first_token_.begin()) - 1;
    const size_t n = std::min(tokens.size(), static_cast<size_t>(*next - at));
    sources_[i]->read(at - first_token_[i], tokens.first(n), starts.first(n));
    tokens = tokens.subspan(n);
    starts = starts.subspan(n);
    at += static_cast<int64_t>(n);
  }
}

// A part of a stream, as a source.
class StreamSource : public TokenSource {
 public:
  explicit StreamSource(TokenStream stream) : stream_(std::move(stream)) {}
  int64_t n_tokens() const override { return stream_.n_tokens(); }
  uint64_t identity() const override { return stream_.identity(); }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    stream_.read(first, tokens, flags);
    if (first == 0 && !flags.empty()) flags.front() |= kDocumentStart;
  }

 private:
  TokenStream stream_;
};

TokenStream TokenStream::weighted(std::span<const std::pair<TokenStream, double>> streams) {
  std::vector<std::shared_ptr<const TokenSource>> sources;
  std::vector<StreamPart> parts;
  int64_t end = 0;
  for (const auto& [stream, weight] : streams) {
    sources.push_back(std::make_shared<StreamSource>(stream));
    end += stream.n_tokens();
    parts.push_back({.end = end, .weight = weight});
  }
  TokenStream all(std::move(sources));
  all.parts_ = std::move(parts);
  return all;
}

TokenStream TokenStream::slice(int64_t begin, int64_t end) const {
  CHECK(0 <= begin && begin <= end && end <= n_tokens());
  TokenStream part = *this;
  part.begin_ = begin_ + begin;
  part.end_ = begin_ + end;
  part.parts_.clear();
  return part;
}

uint64_t TokenStream::identity() const {
  Xxh64 hash;
  for (const auto& source : sources_) hash.add(source->identity());
  hash.add(begin_);
  hash.add(end_);
  return hash.digest();
}

}  // namespace octet
