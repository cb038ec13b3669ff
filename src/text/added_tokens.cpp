#include "text/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace octet {
namespace {

size_t begin_of_character_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (text[at] & 0xC0) == 0x80) --at;
  return at + decode_utf8(text, at).length == end ? at : end - 1;
}

size_t begin_of_space_before(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    const size_t at = begin_of_character_before(text, end);
    if (at < least || !is_white_space(decode_utf8(text, at).code)) break;
    end = at;
  }
  return end;
}

size_t end_of_space_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character character = decode_utf8(text, at);
    if (!is_white_space(character.code)) break;
    at += character.length;
  }
  return at;
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token) {
  CHECK(!token.content.empty());
  contents_.add(token.content, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
  const auto first = static_cast<unsigned char>(token.content[0]);
  for (unsigned second = 0; second < 256; ++second) {
    const bool agrees =
        token.content.size() == 1 || static_cast<unsigned char>(token.content[1]) == second;
    if (agrees) begins_with_[first << 8 | second] = true;
  }
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  if (!begins_with_[byte(at) << 8 | byte(at + 1)]) return nullptr;
  ByteTrie::Node node;
  int32_t longest = ByteTrie::kNone;
  for (; at < text.size(); ++at) {
    node = contents_.child(node, text[at]);
    if (!node.exists()) break;
    if (node.value >= 0) longest = node.value;
  }
  return longest < 0 ? nullptr : &tokens_[static_cast<size_t>(longest)];
}

bool AddedTokenFinder::stands_alone(const AddedToken& token, std::string_view text,
                                    size_t at) const {
  const size_t end = at + token.content.size();
  const bool follows_word =
      at > 0 && is_word_character(decode_utf8(text, begin_of_character_before(text, at)).code);
  return !follows_word && (end == text.size() || !is_word_character(decode_utf8(text, end).code));
}

void AddedTokenFinder::for_each_segment(std::string_view text,
                                        const std::function<void(const Segment&)>& visit) const {
  if (empty()) {  // nothing to look for at each place
    if (!text.empty()) visit({.text = text});
    return;
  }
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t first = at;
    size_t begin = at, end = at + token->content.size();
    at = end;  // behind the content: the space that rstrip takes may begin the next token
    if (token->single_word && !stands_alone(*token, text, first)) continue;
    if (token->lstrip) begin = begin_of_space_before(text, first, std::min(done, first));
    if (token->rstrip) end = end_of_space_after(text, end);
    if (begin > done) visit({-1, text.substr(done, begin - done)});
    visit({token->id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) visit({-1, text.substr(done)});
}

}  // namespace octet
