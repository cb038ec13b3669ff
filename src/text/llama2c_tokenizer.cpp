#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/byte_alphabet.h"
#include "text/scored_vocabulary.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

constexpr int32_t kUnknown = 0, kBos = 1, kEos = 2, kSpecialTokens = 3;

std::vector<ScoredToken> read_tokens(const TokenizerFile& file) {
  const std::string& bytes = file.bytes;
  if (bytes.size() < 4) {
    bad_tokenizer(file.path, "expected at least 4 bytes, got {}", bytes.size());
  }
  int32_t max_length = 0;
  std::memcpy(&max_length, bytes.data(), 4);
  if (max_length < 1) {
    bad_tokenizer(file.path, "longest token must be above 0, got {}", max_length);
  }
  std::vector<ScoredToken> tokens;
  for (size_t at = 4; at < bytes.size();) {
    const size_t id = tokens.size();
    float score = 0;
    int32_t length = 0;
    if (bytes.size() - at < 8) bad_tokenizer(file.path, "token {}: the file ends within it", id);
    std::memcpy(&score, bytes.data() + at, 4);
    std::memcpy(&length, bytes.data() + at + 4, 4);
    at += 8;
    // llama2.c's own files hold special tokens longer than the stated maximum, so only the file
    // bounds a length.
    if (length < 0 || static_cast<size_t>(length) > bytes.size() - at) {
      bad_tokenizer(file.path, "token {}: expected a length of at most {}, got {}", id,
                    bytes.size() - at, length);
    }
    if (std::isnan(score)) bad_tokenizer(file.path, "token {}: its score is not a number", id);
    tokens.push_back({bytes.substr(at, static_cast<size_t>(length)), score});
    at += static_cast<size_t>(length);
  }
  if (tokens.size() < kSpecialTokens + 256) {
    bad_tokenizer(file.path, "expected at least {} tokens, got {}", kSpecialTokens + 256,
                  tokens.size());
  }
  return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> read_llama2c_tokenizer(const TokenizerFile& file) {
  const std::vector<ScoredToken> tokens = read_tokens(file);
  TokenizerParts parts;
  parts.name = file.path;
  parts.symbols = Symbols::characters;
  set_scored_tokens(parts, tokens);
  for (int32_t byte = 0; byte < 256; ++byte) {
    parts.byte_ids[static_cast<size_t>(byte)] = kSpecialTokens + byte;
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int byte = byte_of_token(tokens[id].bytes);
    const std::string surface = id < kSpecialTokens ? ""
                                : byte >= 0         ? std::string(1, static_cast<char>(byte))
                                                    : tokens[id].bytes;
    parts.surfaces.add(static_cast<int64_t>(id), surface);
  }
  if (parts.vocabulary.find(" ") >= 0) parts.normalizer.add(PrependText{" "});
  parts.decode_strips_space = true;
  parts.silent = {kUnknown, kBos, kEos};
  parts.bos = kBos;
  parts.eos = kEos;
  parts.prefix = {kBos};
  return word_tokenizer(std::move(parts));
}

}  // namespace octet
