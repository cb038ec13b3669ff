#include "text/word_pieces.h"

#include "base/error.h"
#include "text/unicode.h"

namespace octet {
namespace {

bool has_more_characters(std::string_view word, int64_t max_chars) {
  if (word.size() <= static_cast<size_t>(max_chars)) return false;
  int64_t n = 0;
  for (size_t at = 0; at < word.size() && n <= max_chars; ++n) {
    at += decode_utf8(word, at).length;
  }
  return n > max_chars;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// In this order.
std::string cleaned(std::string token) {
  constexpr struct {
    std::string_view from, to;
  } kReplaced[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                   {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                   {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplaced) replace_all(token, from, to);
  return token;
}

}  // namespace

WordPieces::WordPieces(const Vocabulary& spelled, const WordPieceOptions& options)
    : options_(options) {
  if (options.max_chars < 0 || options.max_chars > kMaxChars) {
    throw Error(ErrorCode::invalid_argument,
                "expected max_input_chars_per_word from 0 to {}, got {}", kMaxChars,
                options.max_chars);
  }
  for (int32_t id = 0; id < spelled.size(); ++id) {
    if (!spelled.bytes(id).empty()) tokens_.add(spelled.bytes(id), id);
  }
  for (const char byte : options.prefix) {
    if (continuing_.exists()) continuing_ = tokens_.child(continuing_, byte);
  }
}

void WordPieces::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (has_more_characters(word, options_.max_chars)) return ids.push_back(options_.unknown);
  const size_t n_before = ids.size();
  for (size_t at = 0; at < word.size();) {
    ByteTrie::Node node = at == 0 ? ByteTrie::Node() : continuing_;
    int32_t longest = ByteTrie::kNone;
    size_t end = at;
    for (size_t i = at; i < word.size() && node.exists(); ++i) {
      node = tokens_.child(node, word[i]);
      if (node.value == ByteTrie::kNone) continue;
      longest = node.value;
      end = i + 1;
    }
    if (longest == ByteTrie::kNone) {
      ids.resize(n_before);
      return ids.push_back(options_.unknown);
    }
    ids.push_back(longest);
    at = end;
  }
}

std::string PieceSpacing::first(std::string_view token) const {
  return cleanup ? cleaned(std::string(token)) : std::string(token);
}

std::string PieceSpacing::later(std::string_view token) const {
  if (prefix && token.starts_with(*prefix)) return first(token.substr(prefix->size()));
  return first(" " + std::string(token));
}

}  // namespace octet
