#include "text/tokenizer_folder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/json.h"
#include "base/parse_text.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

constexpr const char* kLists[] = {"additional_special_tokens", "extra_special_tokens"};

// A text, or an object with its text and flags.
std::optional<AddedToken> token_of(const Json& json, const std::string& path) {
  AddedToken token;
  token.special = true;
  if (json.is_string()) {
    token.content = json.get<std::string>();
  } else if (json.is_object()) {
    token = read_added_token(JsonObject(json, path), /*is_special=*/true);
  }
  if (token.content.empty()) return std::nullopt;
  return token;
}

bool is_of_t5(std::string_view name) {
  return name == "T5Tokenizer" || name == "T5TokenizerFast" || name == "MT5Tokenizer" ||
         name == "MT5TokenizerFast";
}

class Reader {
 public:
  Reader(const Files& files, const std::string& folder) : files_(files), folder_(folder) {}

  TokenizerFolder read() {
    const std::string config = "tokenizer_config.json", map = "special_tokens_map.json";
    const Json json = object(config);
    result_.has_config = !json.is_null();
    result_.tokenizer_class = class_of_model();
    if (!json.is_null()) read_config(json, join_path(folder_, config));
    const auto decoder = json.is_object() ? json.find("added_tokens_decoder") : json.end();
    if (json.is_object() && decoder != json.end()) {
      read_decoder(*decoder, join_path(folder_, config));
    } else {
      if (const Json tokens = object(map); !tokens.is_null()) {
        read_named(tokens, join_path(folder_, map));
      }
      read_added();
    }
    std::stable_sort(result_.added.begin(), result_.added.end(),
                     [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return std::move(result_);
  }

 private:
  // null where there is none
  Json object(const std::string& name) {
    const std::string path = join_path(folder_, name);
    if (!files_.exists(path)) return nullptr;
    result_.has_files = true;
    Json json = parse_json(files_.read_text(path), path);
    [[maybe_unused]] const JsonObject is_object(json, path);  // throws for another value
    return json;
  }

  // T5's class where config.json says it, or the model that has it; "" for others.
  std::string class_of_model() {
    const std::string path = join_path(folder_, "config.json");
    if (!files_.exists(path)) return "";
    const Json json = parse_json(files_.read_text(path), path);
    const JsonObject config(json, path);
    const std::string type = config.string_or("model_type", "");
    // The class reads this file; a tokenizer.model beside a T5 is another tokenizer, as of a run.
    const bool has_its_file = files_.exists(join_path(folder_, "spiece.model"));
    const bool is_t5 = has_its_file && (type == "t5" || type == "mt5");
    const std::string usual = is_t5 ? "T5Tokenizer" : "";
    std::string name = config.string_or("tokenizer_class", usual);
    if (!is_of_t5(name)) return "";
    result_.has_files = result_.has_config = true;
    return name;
  }

  void read_config(const Json& json, const std::string& path) {
    const JsonObject config(json, path);
    result_.tokenizer_class = config.string_or("tokenizer_class", result_.tokenizer_class);
    const auto flag = [&](const char* key) -> std::optional<bool> {
      if (!config.has(key)) return std::nullopt;
      return config.boolean_or(key, false);
    };
    result_.adds_bos = flag("add_bos_token");
    result_.adds_eos = flag("add_eos_token");
    result_.is_legacy = flag("legacy");
    result_.adds_prefix_space = flag("add_prefix_space");
    result_.makes_lower_case = flag("do_lower_case");
    result_.spaces_ideographs = flag("tokenize_chinese_chars");
    result_.strips_accents = flag("strip_accents");
    result_.truncation_side = config.string_or("truncation_side", "");
    if (is_of_t5(result_.tokenizer_class) && config.has("extra_ids")) read_sentinels(config);
    if (config.has("model_input_names")) read_input_names(config.at("model_input_names"), path);
    for (const char* name : kLists) {
      const auto it = json.find(name);
      if (it != json.end() && !it->empty()) result_.config_lists_special = true;
    }
    read_named(json, path);
  }

  // Beside a tokenizer.json they are named as other special tokens are.
  void read_sentinels(const JsonObject& config) {
    constexpr int64_t kMax = 1024;
    const int64_t n = config.integer("extra_ids");
    if (n < 0 || n > kMax)
      bad_tokenizer(config.where(), "extra_ids: expected a number from 0 to {}, got {}", kMax, n);
    result_.extra_ids = n;
    for (int64_t i = 0; i < n; ++i) put_named({.content = sentinel_text(i)});
  }

  void read_input_names(const Json& json, const std::string& path) {
    std::vector<std::string>& names = result_.input_names.emplace();
    for (const Json& name : json.is_array() ? json : Json::array({nullptr})) {
      if (!name.is_string()) bad_tokenizer(path, "model_input_names: expected a list of names");
      names.push_back(name.get<std::string>());
    }
  }

  // The later of two files counts.
  void read_named(const Json& json, const std::string& path) {
    for (const char* name : kSpecialTokenNames) {
      const auto it = json.find(name);
      if (it == json.end() || it->is_null()) continue;
      const std::optional<AddedToken> token = token_of(*it, path);
      if (!token) continue;
      if (std::string_view(name) == "bos_token") result_.bos = token->content;
      if (std::string_view(name) == "eos_token") result_.eos = token->content;
      if (std::string_view(name) == "pad_token") result_.pad = token->content;
      if (std::string_view(name) == "unk_token") result_.unknown = token->content;
      put_named(*token);
    }
    for (const char* name : kLists) {
      const auto it = json.find(name);
      if (it == json.end() || !it->is_structured()) continue;
      for (const Json& entry : *it) {
        if (const std::optional<AddedToken> token = token_of(entry, path)) put_named(*token);
      }
    }
  }

  void put_named(const AddedToken& token) {
    std::erase_if(result_.named,
                  [&](const AddedToken& known) { return known.content == token.content; });
    result_.named.push_back(token);
    result_.named.back().special = true;
    result_.named.back().id = -1;
  }

  void put_added(AddedToken token, int64_t id, const std::string& path) {
    if (id < 0 || id >= Vocabulary::kMaxTokens) {
      bad_tokenizer(path, "added token '{}': expected an id from 0 to {}, got {}", token.content,
                    Vocabulary::kMaxTokens - 1, id);
    }
    token.id = static_cast<int32_t>(id);
    result_.added.push_back(std::move(token));
  }

  void read_decoder(const Json& json, const std::string& path) {
    if (!json.is_object()) bad_tokenizer(path, "added_tokens_decoder: expected an object");
    for (const auto& [key, value] : json.items()) {
      const auto id = parse_number<int64_t>(key);
      const std::optional<AddedToken> token = token_of(value, path);
      if (!id || !token) {
        bad_tokenizer(path, "added_tokens_decoder: expected ids with tokens, got '{}'", key);
      }
      put_added(*token, *id, path);
    }
  }

  void read_added() {
    const std::string name = "added_tokens.json";
    const Json json = object(name);
    if (json.is_null()) return;
    for (const auto& [content, id] : json.items()) {
      if (!id.is_number_integer() || content.empty()) {
        bad_tokenizer(join_path(folder_, name), "token '{}': expected an id", content);
      }
      AddedToken token;
      token.content = content;
      token.special = std::ranges::find(result_.named, token.content, &AddedToken::content) !=
                      result_.named.end();
      token.normalized = !token.special;
      put_added(token, id.get<int64_t>(), join_path(folder_, name));
    }
  }

  const Files& files_;
  const std::string& folder_;
  TokenizerFolder result_;
};

int32_t added_id(const TokenizerParts& parts, std::string_view content) {
  for (const AddedToken& token : parts.added) {
    if (token.content == content) return token.id;
  }
  return -1;
}

// As the tokenizers package spells an added token: as it is looked for, and in a vocabulary of
// spelled bytes as the bytes that its characters would stand for.
std::string decoded(const TokenizerParts& parts, const AddedToken& token) {
  std::string text = token.normalized ? parts.normalizer.apply(token.content) : token.content;
  if (parts.symbols == Symbols::bytes) text = ByteAlphabet().bytes_of(text).value_or(text);
  return text;
}

// Surfaces of the vocabulary's own tokens that are added ones as well.
void respell_added(TokenizerParts& parts) {
  std::map<int32_t, std::string> texts;
  for (const AddedToken& token : parts.added) {
    if (!token.normalized) continue;
    std::string text = decoded(parts, token);
    if (text != parts.surfaces.bytes(token.id)) texts[token.id] = std::move(text);
  }
  if (texts.empty()) return;
  const Vocabulary old = std::move(parts.surfaces);
  parts.surfaces = {};
  for (int32_t id = 0; id < static_cast<int32_t>(old.size()); ++id) {
    if (!old.has(id)) continue;
    const auto text = texts.find(id);
    add_token(parts.name, parts.surfaces, id,
              text == texts.end() ? std::string(old.bytes(id)) : text->second);
  }
}

void put(TokenizerParts& parts, const AddedToken& token) {
  if (!parts.surfaces.has(token.id))
    add_token(parts.name, parts.surfaces, token.id, decoded(parts, token));
  std::erase_if(parts.added,
                [&](const AddedToken& known) { return known.content == token.content; });
  parts.added.push_back(token);
}

}  // namespace

std::string sentinel_text(int64_t i) {
  return fmt::format("<extra_id_{}>", i);
}

int64_t n_sentinels(const TokenizerFolder& folder) {
  constexpr int64_t kUsual = 100;
  return is_of_t5(folder.tokenizer_class) ? folder.extra_ids.value_or(kUsual) : 0;
}

AddedToken read_added_token(const JsonObject& entry, bool is_special) {
  AddedToken token{.content = entry.string("content"),
                   .single_word = entry.boolean_or("single_word", false),
                   .lstrip = entry.boolean_or("lstrip", false),
                   .rstrip = entry.boolean_or("rstrip", false),
                   .special = entry.boolean_or("special", is_special)};
  token.normalized = entry.boolean_or("normalized", !token.special);
  return token;
}

TokenizerFolder read_tokenizer_folder(const Files& files, const std::string& folder) {
  return Reader(files, folder).read();
}

bool gives_token_types(const TokenizerFolder& folder) {
  if (folder.input_names) return std::ranges::count(*folder.input_names, "token_type_ids") > 0;
  constexpr std::string_view kFast = "Fast";
  // BERT's class in transformers 5, by all its names, and those that are made of it.
  constexpr std::string_view kGive[] = {
      "",
      "BertTokenizer",
      "ConvBertTokenizer",
      "DPRContextEncoderTokenizer",
      "DPRQuestionEncoderTokenizer",
      "DebertaTokenizer",
      "DebertaV2Tokenizer",
      "ElectraTokenizer",
      "LayoutLMTokenizer",
      "LxmertTokenizer",
      "MobileBertTokenizer",
      "SqueezeBertTokenizer",
  };
  std::string_view name = folder.tokenizer_class;
  if (name.ends_with(kFast)) name.remove_suffix(kFast.size());
  return std::ranges::count(kGive, name) > 0;
}

TextTemplate without_types(TextTemplate around) {
  for (auto* parts : {&around.single, &around.pair}) {
    for (TemplatePart& part : *parts) part.type = 0;
  }
  return around;
}

void add_folder_tokens(TokenizerParts& parts, const TokenizerFolder& folder,
                       const std::function<int32_t(std::string_view)>& id_of) {
  if (!folder.has_files) return;
  parts.usual = SpecialText::parse;
  const int64_t n_own = parts.surfaces.size();
  for (AddedToken token : folder.added) {
    const int32_t known = id_of(token.content);
    if (known >= 0 && token.id >= n_own) token.id = known;
    put(parts, token);
  }
  for (AddedToken token : folder.named) {
    if (added_id(parts, token.content) >= 0) continue;
    token.id = id_of(token.content);
    if (token.id >= 0) put(parts, token);
  }
  const auto find = [&](const std::optional<std::string>& content) -> std::optional<int32_t> {
    if (!content) return std::nullopt;
    int32_t id = added_id(parts, *content);
    if (id < 0) id = id_of(*content);
    return id < 0 ? std::nullopt : std::optional(id);
  };
  const std::optional<int32_t> bos = find(folder.bos), eos = find(folder.eos);
  if (bos && (parts.bos || folder.adds_bos == true)) parts.bos = bos;
  if (eos) parts.eos = eos;
  if (folder.has_config) {
    parts.prefix.clear();
    if (folder.adds_bos == true && parts.bos) parts.prefix = {*parts.bos};
    if (folder.adds_eos == true && parts.eos) parts.suffix = {*parts.eos};
  }
  if (!parts.normalizer.changes_nothing()) respell_added(parts);
  parts.silence_ends();
}

}  // namespace octet
