#include <algorithm>
#include <unordered_map>

#include "base/named_enum.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_files.h"
#include "text/tokenizer_folder.h"

namespace octet {
namespace {

enum class TokenizerModel : uint8_t { bpe, word_piece, unigram, word_level };
constexpr auto value_names(TokenizerModel) {
  return name_list("BPE", "WordPiece", "Unigram", "WordLevel");
}

class TokenizerReader {
 public:
  TokenizerReader(const TokenizerFile& file, const Json& json, const Json* config)
      : file_(file), path_(file.path), json_(json), config_(config), model_(part("model")) {}

  TokenizerParts read() {
    parts_.name = path_;
    parts_.usual = SpecialText::parse;
    parts_.normalizer = read_normalizer(path_, part("normalizer"));
    read_pre_tokenizer(path_, part("pre_tokenizer"), parts_);
    rules_ = read_decoder(path_, part("decoder"));
    parts_.decode_strips_space = rules_.strips_space;
    kind_ = type_of_model();
    kind_ == TokenizerModel::bpe ? check_bpe() : check_whole_words();
    // Without a decoder tokens stand with spaces between them.
    if (parts_.symbols != Symbols::bytes && part("decoder").is_null())
      rules_.spacing = PieceSpacing{};
    read_decoded();
    kind_ == TokenizerModel::unigram ? read_scored_vocabulary() : read_vocabulary();
    if (kind_ == TokenizerModel::bpe) read_merges();
    if (kind_ == TokenizerModel::word_piece) read_pieces();
    if (kind_ == TokenizerModel::word_level) read_words();
    read_added_tokens();
    read_post_processor(path_, part("post_processor"), parts_);
    if (config_ == nullptr &&
        !gives_token_types(read_tokenizer_folder(file_.files, parent_path(path_))))
      parts_.around = without_types(std::move(parts_.around));
    read_ends();
    return std::move(parts_);
  }

 private:
  const Json& part(const std::string& name) const {
    const auto it = json_.find(name);
    return it == json_.end() ? nothing_ : *it;
  }

  // In the order of the package where no type is said.
  TokenizerModel type_of_model() const {
    const JsonObject model(model_, path_);
    std::string usual = model.has("merges") ? "BPE" : "WordLevel";
    if (model.has("max_input_chars_per_word")) usual = "WordPiece";
    if (model.has("vocab") && model.at("vocab").is_array()) usual = "Unigram";
    const std::string type = model.string_or("type", usual);
    if (const auto kind = enum_from_name<TokenizerModel>(type)) return *kind;
    bad_tokenizer(path_, "model '{}' is not supported", type);
  }

  // Check of models that look words up as characters.
  void check_whole_words() {
    if (parts_.symbols == Symbols::bytes) {
      bad_tokenizer(path_, "pre-tokenizer 'ByteLevel' with a model '{}' is not supported",
                    enum_name(kind_));
    }
  }

  void check_bpe() {
    const JsonObject model(model_, path_);
    if (rules_.spacing) {
      bad_tokenizer(path_, "decoder 'WordPiece' with a model 'BPE' is not supported");
    }
    const bool spells_bytes = rules_.characters_of_bytes && rules_.replaced.changes_nothing();
    if (parts_.symbols == Symbols::bytes && !part("decoder").is_null() && !spells_bytes)
      bad_tokenizer(path_, "pre-tokenizer 'ByteLevel' with another decoder is not supported");
    if (model.has("dropout") && model.number("dropout") != 0) {
      bad_tokenizer(path_, "dropout is not supported");
    }
    parts_.inner_prefix = model.string_or("continuing_subword_prefix", "");
    parts_.word_suffix = model.string_or("end_of_word_suffix", "");
    parts_.fuse_unknown = model.boolean_or("fuse_unk", false);
    parts_.whole_words_first = model.boolean_or("ignore_merges", false);
  }

  // Token as words are matched: bytes where the pre-tokenizer spells bytes as characters.
  std::string matched(const std::string& token) const {
    return parts_.symbols == Symbols::bytes ? alphabet_.matched_bytes(token) : token;
  }

  std::string surface(const std::string& token) const {
    if (parts_.symbols == Symbols::bytes) return alphabet_.bytes_of(token).value_or(token);
    const int byte = rules_.bytes_of_tokens ? byte_of_token(token) : -1;
    if (byte >= 0) return std::string(1, static_cast<char>(byte));
    if (rules_.characters_of_bytes) return alphabet_.bytes_of(token).value_or(token);
    if (rules_.spacing) return rules_.spacing->later(token);
    return rules_.replaced.apply(token);
  }

  // A token with the end of a word as `by`.
  std::string ended(const std::string& token, const std::string& by) const {
    std::string text = token;
    const std::string& end = rules_.word_suffix;
    for (size_t at = text.find(end); at != text.npos; at = text.find(end, at + by.size()))
      text.replace(at, end.size(), by);
    return text;
  }

  static std::string without(std::string token, const std::string& mark) {
    for (size_t at = token.find(mark); at != token.npos; at = token.find(mark, at))
      token.erase(at, mark.size());
    return token;
  }

  // The package spells what it looks for in normalized text as it is found there, be it a token of
  // the model or not.
  void read_decoded() {
    const Json& list = part("added_tokens");
    if (!list.is_array() || parts_.normalizer.changes_nothing()) return;
    for (const Json& json : list) {
      const AddedToken token = read_added_token(JsonObject(json, path_), /*is_special=*/false);
      if (token.normalized) decoded_[token.content] = parts_.normalizer.apply(token.content);
    }
  }

  void add_surface(int64_t id, const std::string& content) {
    const auto known = decoded_.find(content);
    const std::string& token = known == decoded_.end() ? content : known->second;
    if (!rules_.word_suffix.empty()) {
      add_token(path_, parts_.surfaces, id, surface(ended(token, " ")));
      add_token(path_, parts_.last_surfaces, id, surface(ended(token, "")));
      return;
    }
    add_token(path_, parts_.surfaces, id, surface(token));
    if (!rules_.first_mark.empty())
      add_token(path_, parts_.first_surfaces, id, surface(without(token, rules_.first_mark)));
    if (rules_.spacing) add_token(path_, parts_.first_surfaces, id, rules_.spacing->first(token));
  }

  // Where bytes are spelled as characters, those without a token fall back to the bytes of their
  // characters, "<0xC4>" and "<0x8A>" for a line's end.
  void add_fallback(const Json& vocab) {
    if (!parts_.inner_prefix.empty() || !parts_.word_suffix.empty())
      bad_tokenizer(path_, "byte_fallback of bytes with affixes is not supported");
    std::array<int32_t, 256> tokens = no_bytes();
    for (const auto& [token, id] : vocab.items()) {
      const int byte = byte_of_token(token);
      if (byte >= 0) tokens[static_cast<size_t>(byte)] = id.get<int32_t>();
    }
    parts_.fallback_ids.resize(256);
    for (size_t byte = 0; byte < 256; ++byte) {
      const char one = static_cast<char>(byte);
      std::vector<int32_t>& ids = parts_.fallback_ids[byte];
      for (const char own : alphabet_.spelled({&one, 1}))
        ids.push_back(tokens[static_cast<unsigned char>(own)]);
      if (std::ranges::count(ids, -1) > 0) ids.clear();
    }
  }

  void read_vocabulary() {
    const auto it = model_.find("vocab");
    if (it == model_.end() || !it->is_object()) bad_tokenizer(path_, "expected an object 'vocab'");
    n_words_ = std::ssize(*it);
    const auto model = JsonObject(model_, path_);
    const bool falls_back = model.boolean_or("byte_fallback", false);
    for (const auto& [token, id] : it->items()) {
      if (!id.is_number_integer()) bad_tokenizer(path_, "token '{}': expected an id", token);
      const auto number = id.get<int64_t>();
      const std::string bytes = matched(token);
      add_token(path_, parts_.vocabulary, number, bytes);
      add_surface(number, token);
      add_token(path_, contents_, number, token);
      const bool is_spelled = parts_.symbols == Symbols::bytes;
      const bool is_byte = is_spelled && bytes.size() == 1;
      const int byte = is_byte                     ? static_cast<unsigned char>(bytes[0])
                       : falls_back && !is_spelled ? byte_of_token(token)
                                                   : -1;
      if (byte >= 0) parts_.byte_ids[static_cast<size_t>(byte)] = static_cast<int32_t>(number);
    }
    const bool has_all = std::ranges::count(parts_.byte_ids, -1) == 0;
    if (falls_back && parts_.symbols == Symbols::bytes && !has_all) add_fallback(*it);
    if (model.has("unk_token")) {
      parts_.unknown = contents_.find(model.string("unk_token"));
    }
  }

  // [[token, score], ...], whose positions are the ids.
  void read_scored_vocabulary() {
    const JsonObject model(model_, path_);
    const auto it = model_.find("vocab");
    if (it == model_.end() || !it->is_array()) bad_tokenizer(path_, "expected a list 'vocab'");
    n_words_ = std::ssize(*it);
    const bool falls_back = model.boolean_or("byte_fallback", false);
    std::vector<Unigram::Token> tokens;
    UnigramOptions options{.byte_ids = no_bytes()};
    for (const Json& entry : *it) {
      const auto id = std::ssize(tokens);
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        bad_tokenizer(path_, "vocab {}: expected a token and its score", id);
      const auto token = entry[0].get<std::string>();
      tokens.push_back({token, entry[1].get<double>()});
      add_token(path_, parts_.vocabulary, id, token);
      add_surface(id, token);
      add_token(path_, contents_, id, token);
      const int byte = falls_back ? byte_of_token(token) : -1;
      if (byte >= 0) options.byte_ids[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
    }
    if (model.has("unk_id")) {
      const int64_t unknown = model.integer("unk_id");
      if (unknown < 0 || unknown >= std::ssize(tokens)) {
        bad_tokenizer(path_, "unk_id: expected an id from 0 to {}, got {}", std::ssize(tokens) - 1,
                      unknown);
      }
      parts_.unknown = options.unknown = static_cast<int32_t>(unknown);
    }
    parts_.unigram = std::make_unique<const Unigram>(tokens, options);
  }

  void read_words() {
    parts_.whole_words_only = true;
    parts_.whole_words_first = true;
  }

  void read_pieces() {
    const JsonObject model(model_, path_);
    const std::string unknown = model.string("unk_token");
    if (parts_.unknown < 0) {
      bad_tokenizer(path_, "unk_token '{}' is not in the vocabulary", unknown);
    }
    const WordPieceOptions options = {model.string("continuing_subword_prefix"),
                                      model.integer("max_input_chars_per_word"), parts_.unknown};
    parts_.pieces = std::make_unique<const WordPieces>(parts_.vocabulary, options);
  }

  int32_t id_of(const std::string& token, size_t merge) const {
    const int32_t id = contents_.find(token);
    if (id < 0) bad_tokenizer(path_, "merge {}: '{}' is not in the vocabulary", merge, token);
    return id;
  }

  void read_merges() {
    const auto it = model_.find("merges");
    if (it == model_.end() || !it->is_array()) bad_tokenizer(path_, "expected a list 'merges'");
    parts_.merges.reserve(it->size());
    const size_t n_prefix = parts_.inner_prefix.size();
    for (size_t i = 0; i < it->size(); ++i) {
      const auto [left, right] = pair_of((*it)[i], i);
      const std::string joined = left + right.substr(std::min(n_prefix, right.size()));
      const int32_t a = id_of(left, i), b = id_of(right, i), merged = id_of(joined, i);
      const bool is_new = parts_.merges.add(a, b, static_cast<uint32_t>(i), merged);
      if (!is_new) bad_tokenizer(path_, "merge {}: '{} {}' came before", i, left, right);
    }
  }

  // "left right" or ["left", "right"].
  std::pair<std::string, std::string> pair_of(const Json& merge, size_t i) const {
    std::pair<std::string, std::string> pair;
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      if (space != text.npos) pair = {text.substr(0, space), text.substr(space + 1)};
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      pair = {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    if (pair.first.empty() || pair.second.empty()) {
      bad_tokenizer(path_, "merge {}: expected two tokens", i);
    }
    return pair;
  }

  void read_added_tokens() {
    const Json& list = part("added_tokens");
    if (list.is_null()) return;
    if (!list.is_array()) bad_tokenizer(path_, "expected a list 'added_tokens'");
    int64_t next = n_words_;  // what the tokenizers package gives a new token, whatever its id
    for (const Json& json : list) {
      const JsonObject entry(json, path_);
      AddedToken token = read_added_token(entry, /*is_special=*/false);
      const int64_t id = entry.integer("id");
      if (token.content.empty()) bad_tokenizer(path_, "added token {}: expected a text", id);
      const int32_t known = contents_.find(token.content);
      if (known < 0) {
        if (id != next) {
          bad_tokenizer(path_,
                        "added token '{}': expected the id {} behind those before it, got {}",
                        token.content, next, id);
        }
        add_token(path_, contents_, id, token.content);
        add_surface(id, token.content);
      } else if (known != id) {
        bad_tokenizer(path_, "added token '{}': expected the id {}, got {}", token.content, known,
                      id);
      }
      next = std::max(next, id + 1);
      token.id = static_cast<int32_t>(id);
      parts_.added.push_back(token);
    }
  }

  std::optional<int32_t> added_id(std::string_view content) const {
    for (const AddedToken& token : parts_.added) {
      if (token.content == content) return token.id;
    }
    return std::nullopt;
  }

  // The file says what stands around a text, but not what ends a document: that is said beside it,
  // or is one of the usual names.
  void read_ends() {
    if (!parts_.prefix.empty()) parts_.bos = parts_.prefix.front();
    if (!parts_.suffix.empty()) parts_.eos = parts_.suffix.back();
    if (!parts_.eos) parts_.eos = eos_of_config();
    for (const char* name : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"}) {
      if (!parts_.eos) parts_.eos = added_id(name);
    }
    parts_.silent = parts_.prefix;
    parts_.silent.insert(parts_.silent.end(), parts_.suffix.begin(), parts_.suffix.end());
    if (parts_.eos) parts_.silent.push_back(*parts_.eos);
    if (parts_.unknown >= 0) parts_.silent.push_back(parts_.unknown);
  }

  std::optional<int32_t> eos_of_config() const {
    if (config_ != nullptr) return eos_of(*config_, path_);
    const std::string path = join_path(parent_path(path_), "tokenizer_config.json");
    if (!file_.files.exists(path)) return std::nullopt;
    return eos_of(parse_json(file_.files.read_text(path), path), path);
  }

  // A token of the vocabulary that is named need not be an added one.
  std::optional<int32_t> eos_of(const Json& json, const std::string& path) const {
    const JsonObject config(json, path);
    if (!config.has("eos_token")) return std::nullopt;
    const Json& token = config.at("eos_token");
    const std::string content =
        token.is_object() ? JsonObject(token, path).string("content") : config.string("eos_token");
    const int32_t id = contents_.find(content);
    return id < 0 ? std::nullopt : std::optional(id);
  }

  const TokenizerFile& file_;
  const std::string& path_;
  const Json& json_;
  const Json* config_;  // null: the file beside it
  const Json nothing_ = nullptr;
  const Json& model_;
  TokenizerModel kind_ = TokenizerModel::bpe;
  ByteAlphabet alphabet_;
  DecodeRules rules_;
  Vocabulary contents_;                                   // as the file spells them
  std::unordered_map<std::string, std::string> decoded_;  // added tokens that are normalized
  int64_t n_words_ = 0;                                   // of the model, without added tokens
  TokenizerParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(const TokenizerFile& file, const Json& json,
                                               const Json* config) {
  try {
    return word_tokenizer(TokenizerReader(file, json, config).read());
  } catch (const Error& error) {  // steps that are too many, or do too much
    if (error.code() != ErrorCode::invalid_argument) throw;
    bad_tokenizer(file.path, "{}", error.what());
  }
}

}  // namespace octet
