#include <array>

#include "base/base64.h"
#include "base/parse_text.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

struct RankLine {
  std::string token;
  int64_t rank = 0;
};

std::optional<RankLine> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == line.npos) return std::nullopt;
  auto token = decode_base64(line.substr(0, space));
  const auto rank = parse_number<int64_t>(line.substr(space + 1));
  if (!token || !rank) return std::nullopt;
  return RankLine{*std::move(token), *rank};
}

}  // namespace

bool is_rank_file(std::string_view bytes) {
  constexpr size_t kLongestLine = 3 * Vocabulary::kLongestToken;
  bytes = bytes.substr(0, kLongestLine);
  return !bytes.empty() && parse_line(take_line(bytes));
}

std::unique_ptr<Tokenizer> read_rank_file(const TokenizerFile& file,
                                          const TokenizerOptions& options) {
  TokenizerParts parts;
  parts.name = file.path;
  parts.whole_words_first = true;
  std::string_view text = file.bytes;
  for (size_t number = 1; !text.empty() && text != "\n"; ++number) {
    const std::optional<RankLine> parsed = parse_line(take_line(text));
    if (!parsed) {
      bad_tokenizer(file.path, "line {}: expected a token in base64 and its rank", number);
    }
    if (parts.vocabulary.find(parsed->token) >= 0) {
      bad_tokenizer(file.path, "line {}: expected each token once, got one again", number);
    }
    try {
      parts.vocabulary.add(parsed->rank, parsed->token);
    } catch (const Error& error) {
      bad_tokenizer(file.path, "line {}: {}", number, error.what());
    }
  }
  std::vector<uint32_t> ranks(static_cast<size_t>(parts.vocabulary.size()));
  for (size_t id = 0; id < ranks.size(); ++id) ranks[id] = static_cast<uint32_t>(id);
  parts.merges = merges_of_ranks(parts.vocabulary, ranks);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto letter = static_cast<char>(byte);
    parts.byte_ids[byte] = parts.vocabulary.find({&letter, 1});
  }
  parts.surfaces = parts.vocabulary;
  describe_by_size(parts, options, UnknownVocabulary::is_an_error);
  return word_tokenizer(std::move(parts));
}

}  // namespace octet
