#include "text/encode_texts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace octet {
namespace {

using Kind = TemplatePart::Kind;

// The lengths that two texts are cut to, so that both take at most `room`.
std::pair<int64_t, int64_t> longest_first(int64_t first, int64_t second, int64_t room) {
  if (first + second <= room) return {first, second};
  const bool is_swapped = first > second;
  int64_t shorter = std::min(first, second);
  int64_t longer = std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = room - shorter;
  }
  return is_swapped ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

int64_t room_of(const std::vector<TemplatePart>& parts, int64_t max_tokens) {
  const int64_t n_own = std::ranges::count(parts, Kind::token, &TemplatePart::kind);
  if (max_tokens >= n_own) return max_tokens - n_own;
  throw Error(ErrorCode::invalid_argument,
              "[tokenizer] expected room for the {} tokens around a text, got {} in all", n_own,
              max_tokens);
}

void cut(std::vector<int32_t>& ids, int64_t n, CutSide side) {
  const int64_t n_lost = std::ssize(ids) - n;
  const auto first = side == CutSide::start ? ids.begin() : ids.begin() + n;
  ids.erase(first, first + n_lost);
}

void append(EncodedTexts& to, std::span<const int32_t> ids, const TemplatePart& part) {
  to.ids.insert(to.ids.end(), ids.begin(), ids.end());
  to.types.resize(to.ids.size(), part.type);
  to.special.resize(to.ids.size(), part.kind == Kind::token ? 1 : 0);
}

}  // namespace

EncodedTexts encode_texts(const Tokenizer& tokenizer, std::string_view first,
                          std::optional<std::string_view> second,
                          const EncodeTextsOptions& options) {
  const TextTemplate around = tokenizer.text_template();
  const std::vector<TemplatePart>& parts = second ? around.pair : around.single;
  if (parts.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "[tokenizer] expected a tokenizer with a template of pairs, got one without");
  }
  std::vector<int32_t> a, b;
  tokenizer.encode(first, options.text, a);
  if (second) tokenizer.encode(*second, options.text, b);
  bool is_cut = false;
  if (options.max_tokens > 0) {
    const int64_t room = room_of(parts, options.max_tokens);
    const auto [n_a, n_b] = second ? longest_first(std::ssize(a), std::ssize(b), room)
                                   : std::pair(std::min(std::ssize(a), room), int64_t{0});
    is_cut = n_a < std::ssize(a) || n_b < std::ssize(b);
    cut(a, n_a, options.cut);
    cut(b, n_b, options.cut);
  }
  EncodedTexts encoded = join_texts(parts, a, b);
  encoded.is_cut = is_cut;
  return encoded;
}

EncodedTexts join_texts(const std::vector<TemplatePart>& parts, std::span<const int32_t> first,
                        std::span<const int32_t> second) {
  EncodedTexts encoded;
  for (const TemplatePart& part : parts) {
    if (part.kind == Kind::token) {
      append(encoded, {&part.id, 1}, part);
    } else {
      append(encoded, part.kind == Kind::first_text ? first : second, part);
    }
  }
  return encoded;
}

}  // namespace octet
