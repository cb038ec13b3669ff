// A folder of a Marian model: SentencePiece models of the source and of the target (source.spm,
// target.spm) cut texts into pieces, and vocab.json numbers those of both. Source: MarianTokenizer
// of transformers, without the punctuation normalizer that it calls nowhere.
#include <sentencepiece_processor.h>

#include <algorithm>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/tokenizer_files.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

constexpr std::string_view kMarianSpace = "\u2581", kMarianEnd = "</s>", kMarianUnknown = "<unk>",
                           kMarianPadding = "<pad>";

std::string without_marks(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t at = text.find(kMarianSpace);
    result += text.substr(0, at);
    if (at == text.npos) break;
    result += ' ';
    text.remove_prefix(at + kMarianSpace.size());
  }
  return result;
}

// The code of a language that a source may begin with, ">>fra<<", and what follows it.
struct CodedText {
  std::string_view code, rest;
};
CodedText split_code(std::string_view text) {
  const size_t end = text.starts_with(">>") ? text.find("<<") : text.npos;
  if (end == text.npos) return {.code = {}, .rest = text};
  return {.code = text.substr(0, end + 2), .rest = text.substr(end + 2)};
}

class MarianTokenizer : public Tokenizer {
 public:
  MarianTokenizer(const TokenizerFile& file, const Json& vocabulary, const TokenizerFolder& names) {
    for (const auto& [piece, id] : vocabulary.items()) {
      add_token(file.path, pieces_, id.get<int64_t>(), piece);
    }
    for (const auto& [id, piece] :
         {std::pair(&end_, kMarianEnd), std::pair(&unknown_, kMarianUnknown)}) {
      *id = pieces_.find(piece);
      if (*id < 0) bad_tokenizer(file.path, "expected a piece '{}', got none", piece);
    }
    special_ = {end_, unknown_};
    for (const int32_t id : special_)
      finder_.add({.id = id, .content = std::string(pieces_.bytes(id)), .special = true});
    add_special({.content = std::string(kMarianPadding), .special = true});
    for (const auto* tokens : {&names.added, &names.named}) {
      for (const AddedToken& token : *tokens) add_special(token);
    }
    const std::string folder = parent_path(file.path);
    load(file.files, join_path(folder, "source.spm"), source_);
    load(file.files, join_path(folder, "target.spm"), target_);
  }

  int64_t vocab_size() const override { return pieces_.size(); }
  std::optional<int32_t> eos() const override { return end_; }
  std::vector<int32_t> suffix() const override { return {end_}; }
  std::optional<int32_t> unknown() const override { return unknown_; }
  std::vector<int32_t> special_ids() const override { return special_; }
  std::optional<int32_t> special_id(std::string_view text) const override {
    for (const int32_t id : special_ids()) {
      if (pieces_.bytes(id) == text) return id;
    }
    return std::nullopt;
  }

  void encode(std::string_view text, const EncodeTextOptions& options,
              std::vector<int32_t>& ids) const override {
    encode_by(source_, text, options, ids);
  }
  void encode_target(std::string_view text, const EncodeTextOptions& options,
                     std::vector<int32_t>& ids) const override {
    encode_by(target_, text, options, ids);
  }

  std::string token_bytes(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) {
      throw Error(ErrorCode::bad_data, "[tokenizer] expected an id below {}, got {}", vocab_size(),
                  id);
    }
    return is_special(id) ? "" : without_marks(pieces_.bytes(id));
  }
  // Decodes as transformers does: by the source's model, which reads pieces of both. Special tokens
  // are no text.
  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<std::string> pieces;
    for (const int32_t id : ids) {
      token_bytes(id);  // refuses what is no id
      if (!is_special(id)) pieces.emplace_back(pieces_.bytes(id));
    }
    std::string decoded;
    const auto status = source_.Decode(pieces, &decoded);
    if (!status.ok()) {
      throw Error(ErrorCode::bad_data, "[tokenizer] SentencePiece cannot decode: {}",
                  status.message());
    }
    const std::string text = without_marks(decoded);
    constexpr const char* kSpace = " \t\r\n\v\f";
    const size_t first = text.find_first_not_of(kSpace);
    if (first == text.npos) return "";
    return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
  }

 private:
  using Processor = sentencepiece::SentencePieceProcessor;

  static void load(const Files& files, const std::string& path, Processor& processor) {
    if (!files.exists(path)) bad_tokenizer(path, "expected a SentencePiece model, got none");
    const std::string bytes = files.read_text(path);
    if (!is_sentencepiece_model(bytes))
      bad_tokenizer(path, "expected a SentencePiece model, got other data");
    const auto status = processor.LoadFromSerializedProto(bytes);
    if (!status.ok()) bad_tokenizer(path, "SentencePiece refuses the model: {}", status.message());
  }

  bool is_special(int32_t id) const { return std::ranges::count(special_, id) > 0; }

  // One of vocab.json, which no file says another id of, is found whole in texts.
  void add_special(AddedToken token) {
    token.id = pieces_.find(token.content);
    if (token.id < 0 || is_special(token.id)) return;
    token.normalized = false;
    finder_.add(token);
    if (token.special) special_.push_back(token.id);
  }

  void encode_by(const Processor& processor, std::string_view text,
                 const EncodeTextOptions& options, std::vector<int32_t>& ids) const {
    if (options.special == SpecialText::plain) return encode_plain(processor, text, ids);
    finder_.for_each_segment(text, [&](const Segment& segment) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
      } else {
        encode_plain(processor, segment.text, ids);
      }
    });
  }

  void encode_plain(const Processor& processor, std::string_view text,
                    std::vector<int32_t>& ids) const {
    check_utf8(text);
    const CodedText coded = split_code(text);
    const auto id_of = [&](std::string_view piece) {
      const int32_t id = pieces_.find(piece);
      return id >= 0 ? id : unknown_;
    };
    if (!coded.code.empty()) ids.push_back(id_of(coded.code));
    std::vector<std::string> found;
    const auto status = processor.Encode(coded.rest, &found);
    if (!status.ok()) {
      throw Error(ErrorCode::bad_data, "[tokenizer] SentencePiece cannot encode: {}",
                  status.message());
    }
    for (const std::string& piece : found) ids.push_back(id_of(piece));
  }

  Vocabulary pieces_;
  int32_t end_ = -1, unknown_ = -1;
  std::vector<int32_t> special_;
  AddedTokenFinder finder_;
  Processor source_, target_;
};

}  // namespace

bool is_marian_vocabulary(const TokenizerFile& file) {
  const std::string folder = parent_path(file.path);
  return file.path.ends_with("vocab.json") && file.files.exists(join_path(folder, "source.spm"));
}

std::unique_ptr<Tokenizer> read_marian_tokenizer(const TokenizerFile& file, const Json& vocab) {
  const std::string folder = parent_path(file.path);
  const std::string path = join_path(folder, "tokenizer_config.json");
  if (file.files.exists(path)) {
    const Json root = parse_json(file.files.read_text(path), path);
    const JsonObject json(root, path);
    if (json.boolean_or("separate_vocabs", false))
      bad_tokenizer(path, "'separate_vocabs': expected false, got true");
  }
  const TokenizerFolder names = read_tokenizer_folder(file.files, folder);
  for (const auto& [name, expected] :
       {std::pair(names.eos, kMarianEnd), std::pair(names.pad, kMarianPadding),
        std::pair(names.unknown, kMarianUnknown)}) {
    if (name && *name != expected)
      bad_tokenizer(path, "expected the special token '{}', got '{}'", expected, *name);
  }
  return std::make_unique<MarianTokenizer>(file, vocab, names);
}

}  // namespace octet
