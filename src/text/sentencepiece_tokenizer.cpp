#include <sentencepiece_processor.h>

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/normalizer.h"
#include "text/scored_vocabulary.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer_files.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

constexpr std::string_view kMark = "\u2581";
constexpr std::string_view kUnknownText = " \u2047 ";  // as SentencePiece prints unknown pieces

std::string with_spaces(std::string_view piece) {
  std::string text;
  for (size_t at = 0; at < piece.size();) {
    if (piece.substr(at).starts_with(kMark)) {
      text += ' ';
      at += kMark.size();
    } else {
      text += piece[at++];
    }
  }
  return text;
}

// `parses`: special tokens are text.
std::string surface_of(const SentencePiece& piece, bool parses) {
  const int byte = piece.type == PieceType::byte ? byte_of_token(piece.text) : -1;
  if (byte >= 0) return std::string(1, static_cast<char>(byte));
  const bool is_special = piece.type == PieceType::control || piece.type == PieceType::unknown;
  if (is_special && parses) return std::string(piece.text);
  if (piece.type == PieceType::control) return "";
  return piece.type == PieceType::unknown ? std::string(kUnknownText) : with_spaces(piece.text);
}

// Pieces whose ids the folder gives to other tokens: placeholders, which no text makes any more.
void rename_pieces(SentencePieceModel& model, const TokenizerFolder& folder) {
  for (const AddedToken& token : folder.added) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= model.pieces.size() || model.pieces[id].text == token.content) continue;
    model.pieces[id].text = token.content;
    model.pieces[id].type = PieceType::control;
  }
}

// Which of the parts between added tokens begin with a space of the tokenizer's own.
struct Prefixes {
  PrependScheme scheme = PrependScheme::always;
  bool also_spaced = true;  // parts that begin with a space get another one
};

// Source: transformers. A Llama's tokenizer does not look at what the model says; the others'
// "legacy" is to be SentencePiece anew for each part.
Prefixes prefixes_of(const SentencePieceModel& model, const TokenizerFolder& folder) {
  const std::string& name = folder.tokenizer_class;
  if (name.starts_with("Llama") || name.starts_with("CodeLlama")) {
    if (folder.adds_prefix_space == false) return {PrependScheme::never, false};
    return {folder.is_legacy == true ? PrependScheme::always : PrependScheme::first, false};
  }
  if (!model.adds_dummy_prefix) return {PrependScheme::never, false};
  if (folder.is_legacy.value_or(true)) return {PrependScheme::always, true};
  return {name == "SentencePieceBackend" ? PrependScheme::never : PrependScheme::first, false};
}

// Parts that do not depend on who merges.
TokenizerParts common_parts(const std::string& path, const SentencePieceModel& model, bool parses) {
  TokenizerParts parts;
  parts.name = path;
  parts.symbols = Symbols::characters;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    const auto number = static_cast<int32_t>(id);
    add_token(path, parts.surfaces, number, surface_of(piece, parses));
    const int byte = piece.type == PieceType::byte ? byte_of_token(piece.text) : -1;
    if (byte >= 0) parts.byte_ids[static_cast<size_t>(byte)] = number;
    if (piece.type == PieceType::unknown) parts.unknown = number;
    if (piece.type != PieceType::control) continue;
    parts.added.push_back({.id = number, .content = std::string(piece.text), .special = true});
    parts.silent.push_back(number);
    if (piece.text == model.bos_piece) parts.bos = number;
    if (piece.text == model.eos_piece) parts.eos = number;
  }
  if (parts.bos) parts.prefix = {*parts.bos};
  const bool strips = model.adds_dummy_prefix || model.removes_extra_spaces;
  (model.space_is_suffix ? parts.decode_strips_last_space : parts.decode_strips_space) = strips;
  return parts;
}

// T5's sentinels, the first of which has the last id.
void add_sentinels(TokenizerFolder& tokens, int64_t n_pieces) {
  const int64_t n = n_sentinels(tokens);
  for (int64_t i = 0; i < n; ++i) {
    AddedToken token{.id = static_cast<int32_t>(n_pieces + n - 1 - i),
                     .content = sentinel_text(i),
                     .special = true};
    const bool is_known = std::ranges::any_of(tokens.added, [&](const AddedToken& known) {
      return known.id == token.id || known.content == token.content;
    });
    if (!is_known) tokens.added.push_back(std::move(token));
  }
}

// Tokens of the JSON files beside the model. A template's tokens begin parts of their own, so none
// but a Llama's is looked for in normalized text.
void add_model_tokens(TokenizerParts& parts, const SentencePieceModel& model,
                      const TokenizerFolder& folder) {
  if (!folder.has_files) return;
  TokenizerFolder tokens = folder;
  add_sentinels(tokens, std::ssize(model.pieces));
  Vocabulary pieces;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    pieces.add(static_cast<int64_t>(id), piece.text);
    AddedToken own;
    own.content = piece.text;
    own.special = piece.type == PieceType::unknown ||
                  (!folder.bos && piece.text == model.bos_piece) ||
                  (!folder.eos && piece.text == model.eos_piece);
    if (own.special || piece.type == PieceType::user_defined) tokens.named.push_back(own);
  }
  if (model.adds_dummy_prefix && !folder.tokenizer_class.starts_with("Llama")) {
    for (AddedToken& token : tokens.added) token.normalized = false;
  }
  // Control pieces that no file names are looked for by one class, where the folder lists no
  // others.
  const bool keeps_control =
      folder.tokenizer_class == "TokenizersBackend" && !folder.config_lists_special;
  if (!keeps_control) parts.added.clear();
  add_folder_tokens(parts, tokens, [&](std::string_view text) { return pieces.find(text); });
}

// Pieces of the user's that SentencePiece finds within a text, with its space in front: those that
// no file names, but where a Llama's class looks for them first, as for special tokens. Source:
// transformers 5; where it loses them (a Llama's folder that lists special tokens) 4.57's classes.
std::vector<int32_t> pieces_in_text(const SentencePieceModel& model,
                                    const TokenizerFolder& folder) {
  std::vector<int32_t> ids;
  if (folder.tokenizer_class.starts_with("Llama") && !folder.config_lists_special) return ids;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.type != PieceType::user_defined) continue;
    const auto is_own = [&](const AddedToken& token) { return token.content == piece.text; };
    const bool is_named =
        std::ranges::any_of(folder.added, is_own) || std::ranges::any_of(folder.named, is_own);
    if (!is_named) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// True if our merges do what the library's do: nothing is normalized but spaces, and every
// character has a token or bytes.
bool is_plain_bpe(const SentencePieceModel& model) {
  const bool has_plain_pieces =
      std::all_of(model.pieces.begin(), model.pieces.end(), [](const SentencePiece& piece) {
        return piece.type != PieceType::user_defined && piece.type != PieceType::unused;
      });
  const auto n_bytes =
      std::count_if(model.pieces.begin(), model.pieces.end(),
                    [](const SentencePiece& piece) { return piece.type == PieceType::byte; });
  return model.type == SentencePieceModel::Type::bpe && has_plain_pieces && n_bytes == 256 &&
         model.byte_fallback && !model.space_is_suffix && model.character_map.empty() &&
         !model.removes_extra_spaces && model.escapes_spaces;
}

void set_merges(TokenizerParts& parts, const SentencePieceModel& model, const Prefixes& prefixes) {
  std::vector<ScoredToken> tokens;
  for (const SentencePiece& piece : model.pieces) {
    tokens.push_back({std::string(piece.text), piece.score, piece.type == PieceType::normal});
  }
  set_scored_tokens(parts, tokens);
  if (!prefixes.also_spaced) {
    parts.words.add(MarkSpaces{std::string(kMark), prefixes.scheme, /*split=*/false});
    return;
  }
  parts.normalizer.add(ReplaceText{" ", std::string(kMark)});
  parts.normalizer.add(PrependText{std::string(kMark)});
}

// Unigram models, and BPE with a normalizer or tokens of the user's: the library encodes.
class LibraryTokenizer : public Tokenizer {
 public:
  // All added tokens but those of `in_text` are looked for in a text before it is encoded.
  LibraryTokenizer(TokenizerParts parts, const std::string& bytes, const Prefixes& prefixes,
                   const std::vector<int32_t>& in_text)
      : usual_(parts.usual), prefixes_(prefixes) {
    // The later fields of a message given twice count: this one says add_dummy_prefix: false.
    constexpr std::string_view kNoPrefix("\x1a\x02\x18\x00", 4);
    load(processor_, parts.name, bytes);
    load(bare_, parts.name, bytes + std::string(kNoPrefix));
    for (const AddedToken& token : parts.added) {
      if (std::ranges::find(in_text, token.id) == in_text.end()) finder_.add(token);
    }
    decoder_ = word_tokenizer(std::move(parts));
  }

  int64_t vocab_size() const override { return decoder_->vocab_size(); }
  std::optional<int32_t> bos() const override { return decoder_->bos(); }
  std::optional<int32_t> eos() const override { return decoder_->eos(); }
  std::vector<int32_t> prefix() const override { return decoder_->prefix(); }
  std::vector<int32_t> suffix() const override { return decoder_->suffix(); }
  std::optional<int32_t> unknown() const override { return decoder_->unknown(); }
  std::vector<int32_t> special_ids() const override { return decoder_->special_ids(); }
  std::optional<int32_t> special_id(std::string_view text) const override {
    return decoder_->special_id(text);
  }

  void encode(std::string_view text, const EncodeTextOptions& options,
              std::vector<int32_t>& ids) const override {
    const SpecialText special = options.special == SpecialText::as_usual ? usual_ : options.special;
    if (special != SpecialText::parse) return encode_plain(text, true, ids);
    finder_.for_each_segment(text, [&](const Segment& segment) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
      } else {
        encode_plain(segment.text, segment.text.data() == text.data(), ids);
      }
    });
  }

  std::string token_bytes(int32_t id) const override { return decoder_->token_bytes(id); }
  std::string decode(std::span<const int32_t> ids) const override { return decoder_->decode(ids); }

 private:
  using Processor = sentencepiece::SentencePieceProcessor;

  static void load(Processor& processor, const std::string& name, const std::string& bytes) {
    const auto status = processor.LoadFromSerializedProto(bytes);
    if (!status.ok()) bad_tokenizer(name, "SentencePiece refuses the model: {}", status.message());
  }

  bool has_prefix(std::string_view text, bool is_first) const {
    if (prefixes_.also_spaced) return true;
    if (text.starts_with(' ') || text.starts_with(kMark)) return false;
    return prefixes_.scheme == PrependScheme::always ||
           (prefixes_.scheme == PrependScheme::first && is_first);
  }

  void encode_plain(std::string_view text, bool is_first, std::vector<int32_t>& ids) const {
    check_utf8(text);
    std::vector<int> found;
    const Processor& processor = has_prefix(text, is_first) ? processor_ : bare_;
    const auto status = processor.Encode(text, &found);
    if (!status.ok()) {
      throw Error(ErrorCode::bad_data, "[tokenizer] SentencePiece cannot encode: {}",
                  status.message());
    }
    ids.insert(ids.end(), found.begin(), found.end());
  }

  SpecialText usual_;
  Prefixes prefixes_;
  Processor processor_, bare_;  // with the model's space in front, and without
  AddedTokenFinder finder_;
  std::unique_ptr<Tokenizer> decoder_;
};

}  // namespace

bool is_sentencepiece_model(std::string_view bytes) {
  // Pieces come first: field 1, with a length that is not 0.
  return bytes.size() > 2 && bytes[0] == '\x0A' && bytes[1] != '\0' &&
         parse_sentencepiece_model(bytes).has_value();
}

std::unique_ptr<Tokenizer> read_sentencepiece_model(const TokenizerFile& file) {
  auto model = parse_sentencepiece_model(file.bytes);
  if (!model) bad_tokenizer(file.path, "expected a whole SentencePiece model, got a damaged one");
  if (model->type == SentencePieceModel::Type::word ||
      model->type == SentencePieceModel::Type::character) {
    bad_tokenizer(file.path, "SentencePiece's {} model is not supported",
                  model->type == SentencePieceModel::Type::word ? "WORD" : "CHAR");
  }
  const TokenizerFolder folder = read_tokenizer_folder(file.files, parent_path(file.path));
  rename_pieces(*model, folder);
  TokenizerParts parts = common_parts(file.path, *model, folder.has_files);
  add_model_tokens(parts, *model, folder);
  const Prefixes prefixes = prefixes_of(*model, folder);
  if (prefixes.scheme == PrependScheme::never && model->adds_dummy_prefix) {
    parts.decode_strips_space = false;
  }
  if (!is_plain_bpe(*model)) {
    return std::make_unique<LibraryTokenizer>(std::move(parts), file.bytes, prefixes,
                                              pieces_in_text(*model, folder));
  }
  set_merges(parts, *model, prefixes);
  return word_tokenizer(std::move(parts));
}

}  // namespace octet
