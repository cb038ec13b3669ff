#include "text/scored_vocabulary.h"

#include <algorithm>

#include "text/tokenizer_files.h"

namespace octet {

void set_scored_tokens(TokenizerParts& parts, const std::vector<ScoredToken>& tokens) {
  std::vector<float> scores;
  for (const ScoredToken& token : tokens) {
    if (token.is_merged) scores.push_back(token.score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks(tokens.size(), kNotMerged);
  for (size_t id = 0; id < tokens.size(); ++id) {
    const ScoredToken& token = tokens[id];
    if (!token.is_merged) continue;
    add_token(parts.name, parts.vocabulary, static_cast<int64_t>(id), token.bytes);
    // Equal scores have equal ranks: then the leftmost pair goes first.
    const auto at = std::lower_bound(scores.begin(), scores.end(), token.score, std::greater<>());
    ranks[id] = static_cast<uint32_t>(at - scores.begin());
  }
  ranks.resize(static_cast<size_t>(parts.vocabulary.size()));
  parts.merges = merges_of_ranks(parts.vocabulary, ranks);
}

}  // namespace octet
