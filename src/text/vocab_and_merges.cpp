#include <algorithm>

#include "base/parse_text.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_files.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

std::string merges_beside(const TokenizerFile& file) {
  const std::string folder = parent_path(file.path);
  for (const char* name : {"merges.txt", "vocab.bpe"}) {
    std::string path = join_path(folder, name);
    if (file.files.exists(path)) return path;
  }
  bad_tokenizer(file.path, "expected merges.txt or vocab.bpe beside the vocabulary, got neither");
}

class MergesReader {
 public:
  explicit MergesReader(const std::string& path) : path_(path) { parts_.name = path; }

  void read_vocabulary(const Json& vocab) {
    for (const auto& [token, id] : vocab.items()) {
      if (!id.is_number_integer()) bad_tokenizer(path_, "token '{}': expected an id", token);
      const std::string bytes = alphabet_.matched_bytes(token);
      add_token(path_, parts_.vocabulary, id.get<int64_t>(), bytes);
      add_token(path_, parts_.surfaces, id.get<int64_t>(),
                alphabet_.bytes_of(token).value_or(token));
      add_token(path_, spelled_, id.get<int64_t>(), token);
      if (bytes.size() == 1) {
        parts_.byte_ids[static_cast<unsigned char>(bytes[0])] = id.get<int32_t>();
      }
    }
  }

  // A line a merge, "left right"; the first line may say "#version".
  void read_merges(const std::string& path, std::string_view text) {
    uint32_t rank = 0;
    for (size_t number = 1; !text.empty(); ++number) {
      const std::string_view line = take_line(text);
      if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
      const size_t space = line.find(' ');
      if (space == line.npos) bad_tokenizer(path, "line {}: expected two tokens", number);
      const auto left = alphabet_.bytes_of(line.substr(0, space));
      const auto right = alphabet_.bytes_of(line.substr(space + 1));
      if (!left || !right || left->empty() || right->empty()) {
        bad_tokenizer(path, "line {}: expected two tokens in GPT-2's alphabet", number);
      }
      const int32_t a = parts_.vocabulary.find(*left), b = parts_.vocabulary.find(*right),
                    merged = parts_.vocabulary.find(*left + *right);
      if (a < 0 || b < 0 || merged < 0) {
        bad_tokenizer(path, "line {}: expected tokens of the vocabulary", number);
      }
      if (!parts_.merges.add(a, b, rank++, merged)) {
        bad_tokenizer(path, "line {}: expected each merge once, got one again", number);
      }
    }
  }

  TokenizerParts take() { return std::move(parts_); }
  int32_t id_of(std::string_view token) const { return spelled_.find(token); }

 private:
  const std::string& path_;
  ByteAlphabet alphabet_;
  Vocabulary spelled_;  // as the file has them
  TokenizerParts parts_;
};

// Qwen's class adds its special tokens again, by their texts alone.
void forget_flags_of_named(TokenizerFolder& folder) {
  for (AddedToken& token : folder.added) {
    const bool is_named =
        std::any_of(folder.named.begin(), folder.named.end(),
                    [&](const AddedToken& named) { return named.content == token.content; });
    if (!is_named) continue;
    token.single_word = token.lstrip = token.rstrip = token.normalized = false;
    token.special = true;
  }
}

}  // namespace

std::unique_ptr<Tokenizer> read_vocab_and_merges(const TokenizerFile& file, const Json& vocab,
                                                 const TokenizerOptions& options) {
  const std::string merges = merges_beside(file);
  MergesReader reader(file.path);
  reader.read_vocabulary(vocab);
  reader.read_merges(merges, file.files.read_text(merges));
  TokenizerParts parts = reader.take();
  TokenizerFolder folder = read_tokenizer_folder(file.files, parent_path(file.path));
  if (folder.adds_prefix_space == true) parts.words.add(PrefixSpace{});
  TokenizerOptions words = options;
  if (folder.tokenizer_class.starts_with("Qwen2Tokenizer")) {
    if (words.pattern.empty()) words.pattern = "qwen";
    parts.normalizer.add(std::make_shared<const UnicodeNormalizer>(NormalForm::nfc));
    forget_flags_of_named(folder);
  }
  describe_by_size(parts, words, UnknownVocabulary::is_gpt2);
  add_folder_tokens(parts, folder, [&](std::string_view token) { return reader.id_of(token); });
  return word_tokenizer(std::move(parts));
}

}  // namespace octet
