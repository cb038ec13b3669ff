#include "data/masked_tokens.h"

#include <cmath>
#include <utility>

#include "base/error.h"
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
  // Of shares that are written as decimals the sum may be one rounding above 1.
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

}  // namespace octet
