#include "data/masked_rows.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/integer.h"
#include "base/philox.h"
#include "data/rows.h"

namespace octet {
namespace {

constexpr double kWords = 0x1p32;

bool is_share(double value) {
  return value >= 0 && value <= 1;
}

uint64_t words_below(double share) {
  return static_cast<uint64_t>(std::llround(share * kWords));
}

MaskingOptions checked(MaskingOptions options) {
  if (options.vocab < 1 || options.vocab > INT32_MAX) {
    throw Error(ErrorCode::invalid_argument, "[masking] expected a vocabulary from 1 to {}, got {}",
                INT32_MAX, options.vocab);
  }
  const auto check_token = [&](int32_t token) {
    if (token >= 0 && token < options.vocab) return;
    throw Error(ErrorCode::invalid_argument,
                "[masking] expected mask and special tokens from 0 to {}, got {}",
                options.vocab - 1, token);
  };
  check_token(options.mask_token);
  for (const int32_t token : options.special_tokens) check_token(token);
  // Shares that are written as decimals may have a sum one rounding above 1.
  constexpr double kRounding = 1e-9;
  const bool are_shares = is_share(options.chosen) && is_share(options.masked) &&
                          is_share(options.random) &&
                          options.masked + options.random <= 1 + kRounding;
  if (are_shares) return options;
  throw Error(ErrorCode::invalid_argument,
              "[masking] expected shares from 0 to 1, masked and random together as well, got "
              "chosen {}, masked {}, random {}",
              options.chosen, options.masked, options.random);
}

}  // namespace

TokenMasking::TokenMasking(MaskingOptions options)
    : options_(checked(std::move(options))),
      is_special_(static_cast<size_t>(options_.vocab)),
      chosen_below_(words_below(options_.chosen)),
      masked_below_(words_below(options_.masked)),
      random_below_(words_below(options_.masked + options_.random)) {
  for (const int32_t token : options_.special_tokens)
    is_special_[static_cast<size_t>(token)] = true;
}

MaskedRow TokenMasking::mask(std::span<const int32_t> tokens, int64_t row) const {
  constexpr uint64_t kStream = name_hash("masked tokens");
  const uint64_t seed = options_.seed ^ kStream;
  const PhiloxKey key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  MaskedRow masked{{tokens.begin(), tokens.end()},
                   std::vector<int32_t>(tokens.size(), kIgnoredLabel)};
  for (size_t place = 0; place < tokens.size(); ++place) {
    const int32_t token = tokens[place];
    if (token < 0 || token >= options_.vocab) {
      throw Error(ErrorCode::bad_data, "[masking] expected tokens from 0 to {}, got {}",
                  options_.vocab - 1, token);
    }
    if (is_special_[static_cast<size_t>(token)]) continue;
    const PhiloxBlock words = philox(key, static_cast<uint64_t>(row), place);
    if (words.word[0] >= chosen_below_) continue;
    masked.labels[place] = token;
    if (words.word[1] < masked_below_) {
      masked.tokens[place] = options_.mask_token;
    } else if (words.word[1] < random_below_) {
      const uint64_t vocab = static_cast<uint64_t>(options_.vocab);
      masked.tokens[place] = static_cast<int32_t>(words.word[2] * vocab >> 32);
    }
  }
  return masked;
}

namespace {

MaskingOptions with_seed(MaskingOptions options, uint64_t seed) {
  options.seed = seed;
  return options;
}

class MaskedRows : public RowSource {
 public:
  MaskedRows(TokenStream stream, MaskedRowsOptions options)
      : stream_(std::move(stream)),
        options_(std::move(options)),
        inputs_{tokens_input(), options_.labels},
        in_training_(options_.masking),
        in_evaluation_(with_seed(options_.masking, 0)) {
    const auto n_around = std::ssize(options_.before) + std::ssize(options_.behind);
    window_ = options_.seq - n_around;
    if (window_ < 1) {
      throw Error(ErrorCode::invalid_argument,
                  "model.seq: expected more than the {} tokens around a text, got {}", n_around,
                  options_.seq);
    }
  }

  int64_t n_samples() const override { return ceil_div(stream_.n_tokens(), window_); }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return true; }
  uint64_t identity() const override {
    Xxh64 hash;
    hash.add(stream_.identity());
    hash.update_sized(options_.before);
    hash.update_sized(options_.behind);
    return hash.digest();
  }
  int64_t sample_bytes() const override { return window_ * token_bytes(options_.masking.vocab); }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    const MaskedRow row = masked(sample, where);
    const auto part = [&](const InputSpec& input) {
      return std::span(to.ints(input.name))
          .subspan(static_cast<size_t>(where.row * options_.seq),
                   static_cast<size_t>(options_.seq));
    };
    const auto tokens = part(inputs_[0]), labels = part(inputs_[1]);
    std::ranges::fill(tokens, options_.padding);
    std::ranges::copy(row.tokens, tokens.begin());
    std::ranges::copy(row.labels, labels.begin());
    to.lengths[static_cast<size_t>(where.row)] = std::ssize(row.tokens);
  }

 private:
  std::vector<int32_t> tokens_of(int64_t sample) const {
    CHECK(sample >= 0 && sample < n_samples());
    const int64_t first = sample * window_;
    std::vector<int32_t> window(static_cast<size_t>(std::min(window_, stream_.n_tokens() - first)));
    std::vector<uint8_t> flags(window.size());
    stream_.read(first, window, flags);
    const bool begins_so = !options_.before.empty() && window.front() == options_.before.back();
    std::vector<int32_t> tokens = options_.before;
    tokens.insert(tokens.end(), window.begin() + (begins_so ? 1 : 0), window.end());
    tokens.insert(tokens.end(), options_.behind.begin(), options_.behind.end());
    return tokens;
  }

  MaskedRow masked(int64_t sample, const RowCell& where) const {
    const TokenMasking& masking = where.use == RowUse::training ? in_training_ : in_evaluation_;
    return masking.mask(tokens_of(sample), where.drawn);
  }

  TokenStream stream_;
  MaskedRowsOptions options_;
  std::vector<InputSpec> inputs_;
  TokenMasking in_training_, in_evaluation_;
  int64_t window_ = 0;  // tokens of the stream in a row
};

}  // namespace

std::shared_ptr<const RowSource> masked_rows(TokenStream stream, MaskedRowsOptions options) {
  return std::make_shared<MaskedRows>(std::move(stream), std::move(options));
}

}  // namespace octet
