#include "text/gguf_vocabulary_writer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/gguf_scored_vocabulary.h"
#include "text/gguf_vocabulary.h"

namespace octet {
namespace {

class VocabularyWriter {
 public:
  VocabularyWriter(GgufKeys& keys, const GgufVocabularySource& source, int64_t n_rows)
      : keys_(keys), source_(source), n_rows_(n_rows) {}

  void write() {
    const Json& model = source_.tokenizer["model"];
    const bool is_bpe = model.value("type", "BPE") == "BPE";
    if (const auto adds_space = scored_tokenizer_adds_space(source_.tokenizer)) {
      add_scored(model, *adds_space);
    } else if (const auto words = gguf_pre_tokenizer_name(source_.tokenizer); is_bpe && words) {
      for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (const Json text = model.value(affix, Json()); text.is_string() && text != "")
          refuse("model: '{}' has no key in a GGUF file", affix);
      }
      keys_.add("tokenizer.ggml.model", "gpt2");
      keys_.add("tokenizer.ggml.pre", *words);
      add_tokens(model);
      add_merges(model);
    } else {
      refuse(
          "expected a byte-level BPE with words and normalizer that tokenizer.ggml.pre names, or "
          "SentencePiece's BPE, got another");
    }
    add_special_ids();
    add_ends();
    add_templates();
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::invalid_argument, "[convert] {}: {}", source_.path,
                fmt::format(format, std::forward<Args>(args)...));
  }

  void put(const std::string& token, int64_t id, GgufTokenType type) {
    if (id < 0 || id >= n_rows_)
      refuse("expected ids below the embedding's {} rows, got {} for '{}'", n_rows_, id, token);
    tokens_[static_cast<size_t>(id)] = token;
    types_[static_cast<size_t>(id)] = static_cast<int32_t>(type);
    ids_[token] = static_cast<uint32_t>(id);
  }

  void add_tokens(const Json& model) {
    for (int64_t id = 0; id < n_rows_; ++id) tokens_.push_back(fmt::format("[PAD{}]", id));
    types_.assign(tokens_.size(), static_cast<int32_t>(GgufTokenType::unused));
    for (const auto& [token, id] : model.at("vocab").items())
      put(token, id.get<int64_t>(), type_of(token));
    for (const Json& added : source_.tokenizer.value("added_tokens", Json::array())) {
      const auto content = added.at("content").get<std::string>();
      for (const std::string_view flag : {"lstrip", "rstrip", "single_word", "normalized"}) {
        if ((flag != "normalized" || prepends_) && added.value(flag, false))
          refuse("added token '{}': '{}' has no key in a GGUF file", content, flag);
      }
      const bool is_special = added.value("special", false);
      GgufTokenType type = is_special ? GgufTokenType::control : GgufTokenType::user_defined;
      if (is_scored_ && unknown_ == content) type = GgufTokenType::unknown;
      put(content, added.at("id").get<int64_t>(), type);
    }
    keys_.add("tokenizer.ggml.tokens", tokens_);
    keys_.add("tokenizer.ggml.token_type", types_);
  }

  void add_scored(const Json& model, bool adds_space) {
    const auto scores =
        scores_of_merges(source_.tokenizer, static_cast<size_t>(std::max<int64_t>(n_rows_, 0)));
    if (!scores) {
      refuse(
          "expected merges of SentencePiece, all pairs of each token in an order of tokens, got "
          "others");
    }
    unknown_ = model.value("unk_token", Json());
    keys_.add("tokenizer.ggml.model", "llama");
    keys_.add("tokenizer.ggml.pre", "default");
    is_scored_ = true;
    prepends_ = adds_space && !source_.tokenizer.value("normalizer", Json()).is_null();
    add_tokens(model);
    keys_.add("tokenizer.ggml.scores", *scores);
    keys_.add_flag("tokenizer.ggml.add_space_prefix", adds_space);
  }

  GgufTokenType type_of(const std::string& token) const {
    if (!is_scored_) return GgufTokenType::normal;
    if (unknown_ == token) return GgufTokenType::unknown;
    return byte_of_token(token) >= 0 ? GgufTokenType::byte : GgufTokenType::normal;
  }

  void add_merges(const Json& model) {
    std::vector<std::string> merges;
    for (const Json& merge : model.at("merges")) {
      merges.push_back(merge.is_string()
                           ? merge.get<std::string>()
                           : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    keys_.add("tokenizer.ggml.merges", merges);
  }

  std::optional<uint32_t> id_of(const Json& token) const {
    if (token.is_object()) return id_of(token.value("content", Json()));
    const auto at = token.is_string() ? ids_.find(token.get<std::string>()) : ids_.end();
    return at == ids_.end() ? std::nullopt : std::optional(at->second);
  }

  // Id of tokenizer_config.json, or what generation_config.json says of bos, eos and pad.
  std::optional<uint32_t> special_id(const std::string& name) const {
    if (const auto id = id_of(source_.config.value(name, Json()))) return id;
    const std::string key = name + "_id";
    Json id = source_.generation.value(key, Json());
    if (id.is_array() && !id.empty()) id = id[0];
    return id.is_number_unsigned() ? std::optional(id.get<uint32_t>()) : std::nullopt;
  }

  void add_special_ids() {
    for (const GgufSpecialToken& token : gguf_special_tokens()) {
      if (token.name == nullptr) continue;
      const auto id = special_id(token.name);
      if (!id) continue;
      keys_.add(token.key, *id);
      if (token.name == std::string_view("bos_token")) bos_ = id;
      if (token.name == std::string_view("eos_token")) eos_ = id;
    }
    std::vector<uint32_t> ends;
    const Json listed = source_.generation.value("eos_token_id", Json());
    for (const Json& id : listed.is_array() ? listed : Json::array()) {
      if (id.is_number_unsigned() && id.get<uint32_t>() != eos_) ends.push_back(id.get<uint32_t>());
    }
    constexpr const char* kMoreEnds[] = {"tokenizer.ggml.eot_token_id",
                                         "tokenizer.ggml.eom_token_id"};
    if (ends.size() > std::size(kMoreEnds))
      refuse("expected at most 3 tokens that end an answer, got {}", ends.size() + 1);
    for (size_t i = 0; i < ends.size(); ++i) keys_.add(kMoreEnds[i], ends[i]);
  }

  // True if the token stands at this end of each text; another one there is refused.
  bool has_end(const std::vector<int32_t>& ids, std::optional<uint32_t> id,
               std::string_view name) const {
    if (ids.empty()) return false;
    if (ids.size() == 1 && id && ids[0] == static_cast<int32_t>(*id)) return true;
    refuse("expected nothing but {} at this end of a text, got other tokens", name);
  }

  void add_ends() {
    keys_.add_flag("tokenizer.ggml.add_bos_token", has_end(source_.reader.prefix(), bos_, "BOS"));
    keys_.add_flag("tokenizer.ggml.add_eos_token", has_end(source_.reader.suffix(), eos_, "EOS"));
  }

  void add_templates() {
    std::vector<std::string> names;
    for (const auto& [name, text] : source_.templates) {
      if (name == "default") {
        keys_.add("tokenizer.chat_template", text);
      } else {
        names.push_back(name);
        keys_.add("tokenizer.chat_template." + name, text);
      }
    }
    if (!names.empty()) keys_.add("tokenizer.chat_templates", names);
  }

  GgufKeys& keys_;
  const GgufVocabularySource& source_;
  const int64_t n_rows_;
  bool is_scored_ = false;  // SentencePiece's BPE
  Json unknown_;            // its token
  // Its normalizer puts a space before texts, and before tokens that are looked for behind it.
  bool prepends_ = false;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::map<std::string, uint32_t> ids_;
  std::optional<uint32_t> bos_, eos_;
};

}  // namespace

void add_gguf_vocabulary(GgufKeys& keys, const GgufVocabularySource& source, int64_t n_rows) {
  VocabularyWriter(keys, source, n_rows).write();
}

}  // namespace octet
