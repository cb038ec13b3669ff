#include "text/unigram.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/utf8.h"

namespace octet {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(const std::vector<Token>& tokens, const UnigramOptions& options)
    : options_(options) {
  double worst = INFINITY;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const Token& token = tokens[id];
    if (!std::isfinite(token.score)) {
      throw Error(ErrorCode::invalid_argument, "token {}: expected a finite score, got {}", id,
                  token.score);
    }
    worst = std::min(worst, token.score);
    scores_.push_back(token.score);
    if (!token.text.empty()) tokens_.add(token.text, static_cast<int32_t>(id));
  }
  if (tokens.empty()) throw Error(ErrorCode::invalid_argument, "expected tokens, got none");
  unknown_score_ = worst - kUnknownPenalty;
}

// Pieces that follow the best way to `at`, where there is one.
void Unigram::extend(std::string_view word, size_t at, std::vector<Best>& best) const {
  const double till_here = best[at].score;
  const size_t n_character = decode_utf8(word, at).length;
  const auto offer = [&](size_t end, double score, int32_t id) {
    Best& to = best[end];
    if (to.begin < 0 || score > to.score) to = {score, static_cast<int32_t>(at), id};
  };
  bool has_character = false;
  ByteTrie::Node node;
  for (size_t i = at; i < word.size(); ++i) {
    node = tokens_.child(node, word[i]);
    if (!node.exists()) break;
    if (node.value == ByteTrie::kNone) continue;
    offer(i + 1, scores_[static_cast<size_t>(node.value)] + till_here, node.value);
    has_character |= i + 1 - at == n_character;
  }
  if (!has_character) offer(at + n_character, unknown_score_ + till_here, options_.unknown);
}

void Unigram::append(std::string_view piece, int32_t id, std::vector<int32_t>& ids) const {
  if (id >= 0 && id != options_.unknown) return ids.push_back(id);
  // The text of the unknown token itself is one.
  ByteTrie::Node node;
  for (size_t i = 0; i < piece.size() && node.exists(); ++i) node = tokens_.child(node, piece[i]);
  if (node.exists() && node.value != ByteTrie::kNone) return ids.push_back(node.value);
  const auto byte_id = [&](char byte) {
    return options_.byte_ids[static_cast<unsigned char>(byte)];
  };
  if (std::ranges::all_of(piece, [&](char byte) { return byte_id(byte) >= 0; })) {
    for (const char byte : piece) ids.push_back(byte_id(byte));
    return;
  }
  if (options_.unknown < 0) {
    throw Error(ErrorCode::bad_data,
                "[tokenizer] expected a token for every character, got none for byte 0x{:02X}",
                static_cast<unsigned char>(piece.front()));
  }
  ids.push_back(options_.unknown);
}

void Unigram::encode(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<Best> best(word.size() + 1);
  best[0].begin = 0;
  for (size_t at = 0; at < word.size(); at += decode_utf8(word, at).length) extend(word, at, best);
  struct Piece {
    size_t begin, end;
    int32_t id;
  };
  std::vector<Piece> pieces;  // the last one first
  for (size_t end = word.size(); end > 0;) {
    const Best& last = best[end];
    const auto begin = static_cast<size_t>(last.begin);
    const bool is_unknown = last.id == options_.unknown;
    if (is_unknown && !pieces.empty() && pieces.back().id == options_.unknown) {
      pieces.back().begin = begin;
    } else {
      pieces.push_back({begin, end, last.id});
    }
    end = begin;
  }
  for (size_t i = pieces.size(); i-- > 0;) {
    const Piece& piece = pieces[i];
    append(word.substr(piece.begin, piece.end - piece.begin), piece.id, ids);
  }
}

}  // namespace octet
