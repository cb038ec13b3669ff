#include "text/byte_alphabet.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

std::string merges_beside(const TokenizerFile& file) {
  const std::string folder = parent_path(file.path);
  for (const char* name : {"merges.txt", "vocab.bpe"}) {
    const std::string path = join_path(folder, name);
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
      const std::string bytes = alphabet_.bytes_of(token).value_or(token);
      try {
        parts_.vocabulary.add(id.get<int64_t>(), bytes);
      } catch (const Error& error) {
        bad_tokenizer(path_, "{}", error.what());
      }
      if (bytes.size() == 1) {
        parts_.byte_ids[static_cast<unsigned char>(bytes[0])] = id.get<int32_t>();
      }
    }
    parts_.surfaces = parts_.vocabulary;
  }

  // A line a merge, "left right"; the first line may say "#version".
  void read_merges(const std::string& path, std::string_view text) {
    uint32_t rank = 0;
    for (size_t number = 1; !text.empty(); ++number) {
      const size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
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

  BpeParts take() { return std::move(parts_); }

 private:
  const std::string& path_;
  ByteAlphabet alphabet_;
  BpeParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_vocab_and_merges(const TokenizerFile& file, const Json& vocab,
                                                 const TokenizerOptions& options) {
  const std::string merges = merges_beside(file);
  MergesReader reader(file.path);
  reader.read_vocabulary(vocab);
  reader.read_merges(merges, file.files.read_text(merges));
  BpeParts parts = reader.take();
  describe_by_size(parts, options, UnknownVocabulary::is_gpt2);
  return bpe_tokenizer(std::move(parts));
}

}  // namespace octet
