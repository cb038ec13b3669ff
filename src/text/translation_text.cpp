#include "text/translation_text.h"

#include "base/error.h"

namespace octet {
namespace {

// The tokens behind the first n_before may be cut.
TranslationText ended(const Tokenizer& tokenizer, std::vector<int32_t> ids, size_t n_before,
                      const TranslationTextOptions& options) {
  const int64_t max_tokens = options.max_tokens;
  const std::vector<int32_t> end = ending_tokens(tokenizer);
  TranslationText result{.ids = std::move(ids)};
  const size_t most = static_cast<size_t>(max_tokens), n_around = n_before + end.size();
  if (max_tokens > 0 && most <= n_around) {
    throw Error(ErrorCode::invalid_argument,
                "[data] expected rows of more than the {} tokens around a text, got {}", n_around,
                max_tokens);
  }
  if (max_tokens > 0 && result.ids.size() + end.size() > most) {
    const auto n_lost = static_cast<std::ptrdiff_t>(result.ids.size() + end.size() - most);
    const auto first = options.cut == CutSide::start
                           ? result.ids.begin() + static_cast<std::ptrdiff_t>(n_before)
                           : result.ids.end() - n_lost;
    result.ids.erase(first, first + n_lost);
    result.is_cut = true;
  }
  result.ids.insert(result.ids.end(), end.begin(), end.end());
  return result;
}

}  // namespace

std::vector<int32_t> ending_tokens(const Tokenizer& tokenizer) {
  std::vector<int32_t> end = tokenizer.suffix();
  if (end.empty() && tokenizer.eos()) end = {*tokenizer.eos()};
  if (!end.empty()) return end;
  throw Error(ErrorCode::invalid_argument,
              "data.tokenizer: expected one with an end of text, by which a model ends what it "
              "writes, got one without");
}

TranslationText source_tokens(const Tokenizer& tokenizer, std::string_view text,
                              const TranslationTextOptions& options) {
  std::vector<int32_t> ids = tokenizer.prefix();
  const size_t n_before = ids.size();
  tokenizer.encode(text, options.text, ids);
  return ended(tokenizer, std::move(ids), n_before, options);
}

TranslationText target_tokens(const Tokenizer& tokenizer, std::string_view text,
                              const TranslationTextOptions& options) {
  std::vector<int32_t> ids;
  tokenizer.encode_target(text, options.text, ids);
  return ended(tokenizer, std::move(ids), 0, options);
}

}  // namespace octet
