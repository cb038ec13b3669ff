// A stream of documents of given lengths, and rows of text, for tests of rows.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/row_plan.h"
#include "data/text_samples.h"
#include "data/token_stream.h"

namespace octet::test {

// Documents of the given lengths; tokens count up from 1, those of `untrained` documents' first
// halves are not trained.
class Documents : public TokenSource {
 public:
  explicit Documents(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {
    for (const int64_t n : lengths_) {
      for (int64_t i = 0; i < n; ++i) {
        flags_.push_back(
            static_cast<uint8_t>((i == 0 ? kDocumentStart : 0) | (2 * i < n ? kNotTrained : 0)));
      }
    }
  }
  int64_t n_tokens() const override { return static_cast<int64_t>(flags_.size()); }
  uint64_t identity() const override { return flags_.size(); }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(first) + static_cast<int32_t>(i) + 1;
      flags[i] = flags_[static_cast<size_t>(first) + i];
    }
  }
  bool is_label(int32_t token) const {
    return (flags_[static_cast<size_t>(token - 1)] & kNotTrained) == 0;
  }

 private:
  std::vector<int64_t> lengths_;
  std::vector<uint8_t> flags_;
};

inline TokenStream stream_of(std::vector<int64_t> lengths) {
  return TokenStream({std::make_shared<Documents>(std::move(lengths))});
}

// The rows that come next, which are consumed.
inline Batch next(RowLoader& loader, int64_t batch) {
  Batch result = loader.peek(0, batch);
  loader.advance(batch);
  return result;
}

inline std::vector<int64_t> many_lengths() {
  std::vector<int64_t> lengths;
  uint32_t state = 7;
  for (int i = 0; i < 10'000; ++i) {
    state = state * 1664525 + 1013904223;
    lengths.push_back(2 + (state >> 16) % 90);
  }
  return lengths;
}

}  // namespace octet::test
