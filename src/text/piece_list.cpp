#include <algorithm>

#include "base/parse_text.h"
#include "text/bert_text.h"
#include "text/tokenizer_files.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

constexpr std::string_view kUnknownPiece = "[UNK]", kFirst = "[CLS]", kBehind = "[SEP]";

// The later of two equal lines counts: they are added from the last one.
Vocabulary read_lines(const TokenizerFile& file) {
  std::vector<std::string_view> lines;
  for (std::string_view text = file.bytes; !text.empty();) lines.push_back(take_line(text));
  Vocabulary vocabulary;
  for (size_t id = lines.size(); id-- > 0;) {
    add_token(file.path, vocabulary, static_cast<int64_t>(id), lines[id]);
  }
  return vocabulary;
}

int32_t id_of(const std::string& path, const Vocabulary& vocabulary, std::string_view token) {
  const int32_t id = vocabulary.find(token);
  if (id < 0) bad_tokenizer(path, "expected the token '{}', got none", token);
  return id;
}

// Surfaces of the tokens as they are spelled.
void space_surfaces(TokenizerParts& parts, const PieceSpacing& spacing) {
  const Vocabulary spelled = std::move(parts.surfaces);
  parts.surfaces = {};
  for (int32_t id = 0; id < spelled.size(); ++id) {
    if (!spelled.has(id)) continue;
    add_token(parts.name, parts.surfaces, id, spacing.later(spelled.bytes(id)));
    add_token(parts.name, parts.first_surfaces, id, spacing.first(spelled.bytes(id)));
  }
}

}  // namespace

bool is_piece_list(std::string_view bytes) {
  if (bytes.find('\0') != bytes.npos) return false;
  bool has_unknown = false;
  while (!bytes.empty()) has_unknown |= take_line(bytes) == kUnknownPiece;
  return has_unknown;
}

std::unique_ptr<Tokenizer> read_piece_list(const TokenizerFile& file) {
  TokenizerFolder folder = read_tokenizer_folder(file.files, parent_path(file.path));
  TokenizerParts parts;
  parts.name = file.path;
  parts.symbols = Symbols::characters;
  parts.vocabulary = read_lines(file);
  parts.unknown = id_of(file.path, parts.vocabulary, kUnknownPiece);
  parts.pieces = std::make_unique<const WordPieces>(parts.vocabulary,
                                                    WordPieceOptions{.unknown = parts.unknown});
  const bool lower = folder.makes_lower_case.value_or(true);
  add_bert_steps(parts.normalizer, {.spaces_ideographs = folder.spaces_ideographs.value_or(true),
                                    .strips_accents = folder.strips_accents.value_or(lower),
                                    .lower_case = lower});
  add_bert_words(parts.words);
  parts.surfaces = parts.vocabulary;
  folder.has_files = true;
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    folder.named.push_back({.content = name, .special = true});
  }
  add_folder_tokens(parts, folder,
                    [&](std::string_view token) { return parts.vocabulary.find(token); });
  space_surfaces(parts, {"##", /*cleanup=*/true});
  const int32_t cls = id_of(file.path, parts.vocabulary, kFirst),
                sep = id_of(file.path, parts.vocabulary, kBehind);
  parts.around = bert_template(cls, sep);
  if (!gives_token_types(folder)) parts.around = without_types(std::move(parts.around));
  parts.prefix = {cls};
  parts.suffix = {sep};
  parts.bos = cls;
  parts.eos = sep;
  parts.silent = {cls, sep, parts.unknown};
  return word_tokenizer(std::move(parts));
}

}  // namespace octet
