#include <sentencepiece_processor.h>

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/scored_vocabulary.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer_files.h"

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

std::string surface_of(const SentencePiece& piece) {
  const int byte = piece.type == PieceType::byte ? byte_of_token(piece.text) : -1;
  if (byte >= 0) return std::string(1, static_cast<char>(byte));
  if (piece.type == PieceType::control) return "";
  return piece.type == PieceType::unknown ? std::string(kUnknownText) : with_spaces(piece.text);
}

// What does not depend on who merges.
BpeParts common_parts(const std::string& path, const SentencePieceModel& model) {
  BpeParts parts;
  parts.name = path;
  parts.symbols = Symbols::characters;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    const auto number = static_cast<int32_t>(id);
    try {
      parts.surfaces.add(number, surface_of(piece));
    } catch (const Error& error) {
      bad_tokenizer(path, "{}", error.what());
    }
    const int byte = piece.type == PieceType::byte ? byte_of_token(piece.text) : -1;
    if (byte >= 0) parts.byte_ids[static_cast<size_t>(byte)] = number;
    if (piece.type == PieceType::unknown) parts.unknown = number;
    if (piece.type != PieceType::control) continue;
    AddedToken token;
    token.id = number;
    token.content = piece.text;
    token.special = true;
    parts.added.push_back(token);
    parts.silent.push_back(number);
    if (piece.text == model.bos_piece) parts.bos = number;
    if (piece.text == model.eos_piece) parts.eos = number;
  }
  if (parts.bos) parts.prefix = {*parts.bos};
  parts.decode_strips_space = model.adds_dummy_prefix || model.removes_extra_spaces;
  return parts;
}

// Whether our merges do what the library's do: nothing is normalized but spaces, and every
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

void set_merges(BpeParts& parts, const SentencePieceModel& model) {
  std::vector<ScoredToken> tokens;
  for (const SentencePiece& piece : model.pieces) {
    tokens.push_back({std::string(piece.text), piece.score, piece.type == PieceType::normal});
  }
  set_scored_tokens(parts, tokens);
  parts.normalizer.add(ReplaceText{" ", std::string(kMark)});
  if (model.adds_dummy_prefix) parts.normalizer.add(PrependText{std::string(kMark)});
}

// Unigram models, and BPE with a normalizer or tokens of the user's: the library encodes.
class LibraryTokenizer : public Tokenizer {
 public:
  LibraryTokenizer(BpeParts parts, const std::string& bytes) {
    const std::string name = parts.name;
    bos_ = parts.bos;
    eos_ = parts.eos;
    added_ = parts.added;
    const auto status = processor_.LoadFromSerializedProto(bytes);
    if (!status.ok()) bad_tokenizer(name, "SentencePiece refuses the model: {}", status.message());
    finder_.emplace();
    for (const AddedToken& token : added_) finder_->add(token);
    decoder_ = bpe_tokenizer(std::move(parts));
  }

  int64_t vocab_size() const override { return decoder_->vocab_size(); }
  std::optional<int32_t> bos() const override { return bos_; }
  std::optional<int32_t> eos() const override { return eos_; }
  std::vector<int32_t> prefix() const override { return decoder_->prefix(); }
  std::optional<int32_t> special_id(std::string_view text) const override {
    return decoder_->special_id(text);
  }

  void encode(std::string_view text, const EncodeTextOptions& options,
              std::vector<int32_t>& ids) const override {
    if (options.special != SpecialText::parse) return encode_plain(text, ids);
    finder_->for_each_segment(text, [&](const Segment& segment) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
      } else {
        encode_plain(segment.text, ids);
      }
    });
  }

  std::string token_bytes(int32_t id) const override { return decoder_->token_bytes(id); }
  std::string decode(std::span<const int32_t> ids) const override { return decoder_->decode(ids); }

 private:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
    if (const size_t invalid = find_invalid_utf8(text); invalid != text.npos) {
      throw Error(ErrorCode::bad_data,
                  "[tokenizer] expected UTF-8, which this tokenizer normalizes, got byte 0x{:02X} "
                  "at {}",
                  static_cast<unsigned char>(text[invalid]), invalid);
    }
    std::vector<int> found;
    const auto status = processor_.Encode(text, &found);
    if (!status.ok()) {
      throw Error(ErrorCode::bad_data, "[tokenizer] SentencePiece cannot encode: {}",
                  status.message());
    }
    ids.insert(ids.end(), found.begin(), found.end());
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::optional<int32_t> bos_, eos_;
  std::vector<AddedToken> added_;
  std::optional<AddedTokenFinder> finder_;
  std::unique_ptr<Tokenizer> decoder_;
};

}  // namespace

bool is_sentencepiece_model(std::string_view bytes) {
  // Pieces come first: field 1, with a length that is not 0.
  return bytes.size() > 2 && bytes[0] == '\x0A' && bytes[1] != '\0' &&
         parse_sentencepiece_model(bytes).has_value();
}

std::unique_ptr<Tokenizer> read_sentencepiece_model(const TokenizerFile& file) {
  const auto model = parse_sentencepiece_model(file.bytes);
  if (!model) bad_tokenizer(file.path, "expected a whole SentencePiece model, got a damaged one");
  if (model->type == SentencePieceModel::Type::word ||
      model->type == SentencePieceModel::Type::character) {
    bad_tokenizer(file.path, "SentencePiece's {} model is not supported",
                  model->type == SentencePieceModel::Type::word ? "WORD" : "CHAR");
  }
  BpeParts parts = common_parts(file.path, *model);
  if (!is_plain_bpe(*model)) {
    return std::make_unique<LibraryTokenizer>(std::move(parts), file.bytes);
  }
  set_merges(parts, *model);
  return bpe_tokenizer(std::move(parts));
}

}  // namespace octet
