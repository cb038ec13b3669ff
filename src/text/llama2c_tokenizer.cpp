#include <cmath>
#include <cstring>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

constexpr int32_t kBos = 1, kEos = 2, kSpecialTokens = 3;

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<float> scores;
};

Vocabulary read_vocabulary(const Files& files, const std::string& path) {
  const std::string bytes = files.read_text(path);
  const auto bad = [&](const std::string& what) {
    throw Error(ErrorCode::bad_data, "[tokenizer] {}: {}", path, what);
  };
  if (bytes.size() < 4) bad(fmt::format("expected at least 4 bytes, got {}", bytes.size()));
  int32_t max_length = 0;
  std::memcpy(&max_length, bytes.data(), 4);
  if (max_length < 1) bad(fmt::format("longest token must be above 0, got {}", max_length));
  Vocabulary vocabulary;
  for (size_t at = 4; at < bytes.size();) {
    const size_t id = vocabulary.tokens.size();
    float score = 0;
    int32_t length = 0;
    if (bytes.size() - at < 8) bad(fmt::format("token {}: the file ends within it", id));
    std::memcpy(&score, bytes.data() + at, 4);
    std::memcpy(&length, bytes.data() + at + 4, 4);
    at += 8;
    // llama2.c's own files hold special tokens longer than the stated maximum, so only the file
    // bounds a length.
    if (length < 0 || static_cast<size_t>(length) > bytes.size() - at) {
      bad(fmt::format("token {}: expected a length of at most {}, got {}", id, bytes.size() - at,
                      length));
    }
    if (std::isnan(score)) bad(fmt::format("token {}: its score is not a number", id));
    vocabulary.tokens.emplace_back(bytes, at, static_cast<size_t>(length));
    vocabulary.scores.push_back(score);
    at += static_cast<size_t>(length);
  }
  if (vocabulary.tokens.size() < kSpecialTokens + 256) {
    bad(fmt::format("expected at least {} tokens, got {}", kSpecialTokens + 256,
                    vocabulary.tokens.size()));
  }
  return vocabulary;
}

// The byte of "<0xXX>", or -1.
int byte_of(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  int value = 0;
  for (const char digit : {token[3], token[4]}) {
    if (digit >= '0' && digit <= '9')
      value = value * 16 + (digit - '0');
    else if (digit >= 'A' && digit <= 'F')
      value = value * 16 + (digit - 'A' + 10);
    else
      return -1;
  }
  return value;
}

// The bytes up to the next character: at most 4, as llama2.c groups them.
size_t character_length(std::string_view text) {
  size_t n = 1;
  while (n < 4 && n < text.size() && (text[n] & 0xC0) == 0x80) ++n;
  return n;
}

class Llama2cTokenizer : public Tokenizer {
 public:
  explicit Llama2cTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
    for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      ids_.emplace(vocabulary_.tokens[id], static_cast<int32_t>(id));
    }
  }

  int64_t vocab_size() const override { return static_cast<int64_t>(vocabulary_.tokens.size()); }
  std::optional<int32_t> bos() const override { return kBos; }
  std::optional<int32_t> eos() const override { return kEos; }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids = characters(text);
    merge(ids);
    return ids;
  }

  std::string token_bytes(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) {
      throw Error(ErrorCode::bad_data, "[tokenizer] expected ids from 0 to {}, got {}",
                  vocab_size() - 1, id);
    }
    if (id < kSpecialTokens) return "";
    const std::string& token = vocabulary_.tokens[static_cast<size_t>(id)];
    const int byte = byte_of(token);
    return byte >= 0 ? std::string(1, static_cast<char>(byte)) : token;
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id);
    // The space that encode put before the text.
    if (!text.empty() && text.front() == ' ') text.erase(0, 1);
    return text;
  }

 private:
  struct Candidate {
    float score;
    int32_t id;
    int64_t left, right;        // positions of the two parts
    int32_t left_id, right_id;  // what stood there: the candidate is stale when this changed
  };
  struct IsWorse {
    bool operator()(const Candidate& a, const Candidate& b) const {
      return a.score != b.score ? a.score < b.score : a.left > b.left;
    }
  };

  int32_t find(const std::string& token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? -1 : it->second;
  }

  std::vector<int32_t> characters(std::string_view text) const {
    std::vector<int32_t> ids;
    if (text.empty()) return ids;
    if (const int32_t space = find(" "); space >= 0) ids.push_back(space);
    while (!text.empty()) {
      const std::string_view character = text.substr(0, character_length(text));
      const int32_t id = find(std::string(character));
      if (id >= 0) {
        ids.push_back(id);
      } else {
        for (const char byte : character) {
          ids.push_back(kSpecialTokens + static_cast<unsigned char>(byte));
        }
      }
      text.remove_prefix(character.size());
    }
    return ids;
  }

  // A heap of candidate merges over a linked list: n log n, where the textbook loop is quadratic.
  void merge(std::vector<int32_t>& ids) const {
    const int64_t n = static_cast<int64_t>(ids.size());
    std::vector<int64_t> next(ids.size()), previous(ids.size());
    std::priority_queue<Candidate, std::vector<Candidate>, IsWorse> heap;
    const auto id_at = [&](int64_t at) -> int32_t& { return ids[static_cast<size_t>(at)]; };
    const auto offer = [&](int64_t left, int64_t right) {
      if (left < 0 || right >= n) return;
      const auto& tokens = vocabulary_.tokens;
      const int32_t a = id_at(left), b = id_at(right);
      const int32_t id = find(tokens[static_cast<size_t>(a)] + tokens[static_cast<size_t>(b)]);
      if (id < 0) return;
      heap.push({vocabulary_.scores[static_cast<size_t>(id)], id, left, right, a, b});
    };
    for (int64_t i = 0; i < n; ++i) {
      next[static_cast<size_t>(i)] = i + 1;
      previous[static_cast<size_t>(i)] = i - 1;
    }
    for (int64_t i = 0; i + 1 < n; ++i) offer(i, i + 1);
    while (!heap.empty()) {
      const Candidate best = heap.top();
      heap.pop();
      const int64_t left = best.left, right = best.right;
      if (id_at(left) != best.left_id || id_at(right) != best.right_id) continue;
      if (next[static_cast<size_t>(left)] != right) continue;
      id_at(left) = best.id;
      id_at(right) = -1;
      const int64_t after = next[static_cast<size_t>(right)];
      next[static_cast<size_t>(left)] = after;
      if (after < n) previous[static_cast<size_t>(after)] = left;
      offer(previous[static_cast<size_t>(left)], left);
      offer(left, after);
    }
    std::erase(ids, -1);
  }

  Vocabulary vocabulary_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

std::unique_ptr<Tokenizer> llama2c_tokenizer(const Files& files, const std::string& path) {
  return std::make_unique<Llama2cTokenizer>(read_vocabulary(files, path));
}

}  // namespace octet
