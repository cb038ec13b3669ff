#include "text/gguf_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/byte_level_json.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/gguf_scored_vocabulary.h"
#include "text/tokenizer_files.h"

namespace octet {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTemplate = "tokenizer.chat_template";

// Keys that are read below, beside those of special tokens and of named templates.
constexpr std::string_view kReadKeys[] = {"tokenizer.ggml.model",
                                          kPre,
                                          kTokens,
                                          "tokenizer.ggml.token_type",
                                          "tokenizer.ggml.merges",
                                          "tokenizer.ggml.add_bos_token",
                                          "tokenizer.ggml.add_eos_token",
                                          kTemplate,
                                          "tokenizer.chat_templates"};
// Keys without effect on a vocabulary of GPT-2's kind: scores order the merges of SentencePiece's,
// and types of tokens are rows of BERT's embedding.
constexpr std::string_view kNeutralKeys[] = {"tokenizer.ggml.scores",
                                             "tokenizer.ggml.token_type_count"};
// Keys that must be false: they change texts before they are cut into words, or add a token.
constexpr const char* kAddsSpace = "tokenizer.ggml.add_space_prefix";  // of SentencePiece's
constexpr const char* kFalseKeys[] = {kAddsSpace, "tokenizer.ggml.add_sep_token",
                                      "tokenizer.ggml.remove_extra_whitespaces"};

constexpr const char* kBos = "tokenizer.ggml.bos_token_id";
constexpr const char* kEos = "tokenizer.ggml.eos_token_id";
constexpr const char* kUnknown = "tokenizer.ggml.unknown_token_id";
constexpr const char* kPad = "tokenizer.ggml.padding_token_id";
constexpr GgufSpecialToken kSpecialTokens[] = {{kBos, "bos_token"},
                                               {kEos, "eos_token"},
                                               {kUnknown, "unk_token"},
                                               {kPad, "pad_token"},
                                               {"tokenizer.ggml.seperator_token_id", "sep_token"},
                                               {"tokenizer.ggml.cls_token_id", "cls_token"},
                                               {"tokenizer.ggml.mask_token_id", "mask_token"},
                                               {"tokenizer.ggml.eot_token_id", nullptr},
                                               {"tokenizer.ggml.eom_token_id", nullptr},
                                               {"tokenizer.ggml.fim_pre_token_id", nullptr},
                                               {"tokenizer.ggml.fim_suf_token_id", nullptr},
                                               {"tokenizer.ggml.fim_mid_token_id", nullptr},
                                               {"tokenizer.ggml.fim_pad_token_id", nullptr},
                                               {"tokenizer.ggml.fim_rep_token_id", nullptr},
                                               {"tokenizer.ggml.fim_sep_token_id", nullptr},
                                               {"tokenizer.ggml.prefix_token_id", nullptr},
                                               {"tokenizer.ggml.suffix_token_id", nullptr},
                                               {"tokenizer.ggml.middle_token_id", nullptr}};
// Any of these ends an answer.
constexpr const char* kEnds[] = {kEos, "tokenizer.ggml.eot_token_id",
                                 "tokenizer.ggml.eom_token_id"};

// How an answer is drawn where nobody says, as generation_config.json calls it.
struct GgufSampling {
  const char* key;
  GgufType type;
  const char* name;
};
constexpr GgufSampling kSampling[] = {
    {"general.sampling.temp", GgufType::f32, "temperature"},
    {"general.sampling.top_k", GgufType::i32, "top_k"},
    {"general.sampling.top_p", GgufType::f32, "top_p"},
    {"general.sampling.min_p", GgufType::f32, "min_p"},
    {"general.sampling.penalty_repeat", GgufType::f32, "repetition_penalty"}};

Json added_token(size_t id, std::string_view content, bool is_special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", is_special}};
}

class GgufVocabulary {
 public:
  explicit GgufVocabulary(const GgufHeader& header) : header_(header) {
    const std::string model = header.string("tokenizer.ggml.model");
    if (model != "gpt2" && model != "llama")
      header.bad("expected tokenizer.ggml.model 'gpt2' or 'llama', got '{}'", model);
    is_scored_ = model == "llama";
    tokens_ = header.strings(kTokens);
    types_ = header.integers("tokenizer.ggml.token_type");
    if (types_.size() != tokens_.size()) {
      header.bad("expected a type for each token, got {} for {}", types_.size(), tokens_.size());
    }
    const std::string name = header.has(kPre) ? header.string(kPre) : "default";
    const GgufPreTokenizer* row = find_gguf_pre_tokenizer(name);
    if (row == nullptr || (is_scored_ && name != "default"))
      header.bad("{} '{}' is not supported", kPre, name);
    pre_ = *row;
    pre_.adds_bos |= is_scored_;
    check_keys();
  }

  Json tokenizer_json() const {
    Json vocab = Json::object(), added = Json::array();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (type_of(i) == GgufTokenType::unused || tokens_[i].empty()) continue;
      const auto [at, is_new] = vocab.emplace(std::string(tokens_[i]), i);
      if (!is_new) {
        header_.bad("{}: expected each token once, got '{}' as {} and {}", kTokens, tokens_[i],
                    at->dump(), i);
      }
      const bool is_control =
          type_of(i) == GgufTokenType::control || type_of(i) == GgufTokenType::unknown;
      if (is_control || type_of(i) == GgufTokenType::user_defined)
        added.push_back(added_token(i, tokens_[i], is_control));
    }
    if (is_scored_) return scored_json(std::move(vocab), std::move(added));
    ByteLevelBpe bpe;
    bpe.vocab = std::move(vocab);
    bpe.merges = header_.strings("tokenizer.ggml.merges");
    bpe.added_tokens = std::move(added);
    if (pre_.is_nfc) bpe.normalizer = Json{{"type", "NFC"}};
    bpe.pre_tokenizer = pre_tokenizer_json(pre_);
    bpe.post_processor = post_processor();
    bpe.ignore_merges = pre_.ignores_merges;
    return byte_level_json(std::move(bpe));
  }

  Json config() const {
    Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
    for (const GgufSpecialToken& token : kSpecialTokens) {
      if (token.name != nullptr && header_.has(token.key))
        json[token.name] = std::string(tokens_[id_of(token.key)]);
    }
    const Json named = named_templates();
    if (header_.has(kTemplate)) json["chat_template"] = header_.string(kTemplate);
    if (named.empty()) return json;
    Json all = Json::array();
    if (header_.has(kTemplate))
      all.push_back({{"name", "default"}, {"template", header_.string(kTemplate)}});
    for (const Json& one : named) all.push_back(one);
    json["chat_template"] = std::move(all);
    return json;
  }

  Json generation_config() const {
    Json json = Json::object(), ends = Json::array();
    if (header_.has(kBos)) json["bos_token_id"] = id_of(kBos);
    if (header_.has(kPad)) json["pad_token_id"] = id_of(kPad);
    for (const char* key : kEnds) {
      if (!header_.has(key)) continue;
      const Json id = id_of(key);
      if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
    }
    if (!ends.empty()) json["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
    add_sampling(json);
    return json;
  }

 private:
  // A temperature of 0 means the most probable token.
  void add_sampling(Json& json) const {
    bool draws = false;
    for (const GgufSampling& one : kSampling) {
      if (!header_.has(one.key)) continue;
      const std::string text = header_.shown(one.key, one.type);
      const Json value = parse_own_json(text);
      if (!value.is_number() || value < 0)
        header_.bad("'{}': expected a number of 0 or more, got {}", one.key, text);
      draws = true;
      json[one.name] = value;
    }
    if (!draws) return;
    const bool is_greedy = json.contains("temperature") && json["temperature"] == 0;
    if (is_greedy) json.erase("temperature");
    json["do_sample"] = !is_greedy;
  }

  // JSON of SentencePiece's BPE: bytes, the unknown token and special ones are never merged.
  Json scored_json(Json vocab, Json added) const {
    const std::vector<float> scores = header_.reals("tokenizer.ggml.scores");
    if (scores.size() != tokens_.size()) {
      header_.bad("expected a score for each token, got {} for {}", scores.size(), tokens_.size());
    }
    std::vector<GgufScoredToken> tokens;
    size_t unknown = 0;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_merged = type_of(i) == GgufTokenType::normal;
      if (is_merged && !std::isfinite(scores[i]))
        header_.bad("token {}: expected a finite score, got {}", i, scores[i]);
      if (is_merged && tokens_[i].size() > kLongestScoredToken) {
        header_.bad("token {}: expected at most {} bytes, got {}", i, kLongestScoredToken,
                    tokens_[i].size());
      }
      if (type_of(i) == GgufTokenType::unknown) unknown = i;
      tokens.push_back({tokens_[i], is_merged ? std::optional(scores[i]) : std::nullopt});
    }
    if (header_.has(kUnknown)) unknown = id_of(kUnknown);
    if (tokens_.empty()) header_.bad("{}: expected tokens, got none", kTokens);
    return scored_tokenizer_json({.vocab = std::move(vocab),
                                  .merges = scored_merges(tokens),
                                  .added_tokens = std::move(added),
                                  .around = post_processor(),
                                  .unknown = tokens_[unknown],
                                  .adds_space = adds_space()});
  }

  bool adds_space() const { return !header_.has(kAddsSpace) || header_.flag(kAddsSpace); }

  void check_keys() const {
    for (const auto& key : header_.keys()) {
      if (!key.starts_with("tokenizer.")) continue;
      const auto is_one_of = [&key](const auto& list) {
        return std::ranges::find(list, key) != std::end(list);
      };
      if (is_one_of(kReadKeys) || is_one_of(kNeutralKeys)) continue;
      if (key.starts_with(std::string(kTemplate) + ".")) continue;
      if (std::ranges::find(kSpecialTokens, key, &GgufSpecialToken::key) !=
          std::end(kSpecialTokens)) {
        id_of(key);
      } else if (!is_one_of(kFalseKeys)) {
        header_.bad("'{}' is not known: it may change how texts become tokens", key);
      } else if (header_.flag(key) && !(is_scored_ && key == kAddsSpace)) {
        header_.bad("expected '{}' false, got true", key);
      }
    }
  }

  GgufTokenType type_of(size_t id) const { return GgufTokenType{types_[id]}; }

  uint32_t id_of(const std::string& key) const {
    const uint32_t id = header_.number(key);
    if (id < tokens_.size()) return id;
    header_.bad("'{}': expected the id of one of {} tokens, got {}", key, tokens_.size(), id);
  }

  // The token around each text that a key asks for; without the key, what is usual.
  std::optional<uint32_t> end_of_texts(const char* adds, bool usual, const char* key) const {
    if (!(header_.has(adds) ? header_.flag(adds) : usual)) return std::nullopt;
    if (!header_.has(key))
      header_.bad("expected '{}', which stands around each text, got none", key);
    return id_of(key);
  }

  // Null where nothing stands around a text.
  Json post_processor() const {
    const auto bos = end_of_texts("tokenizer.ggml.add_bos_token", pre_.adds_bos, kBos);
    const auto eos = end_of_texts("tokenizer.ggml.add_eos_token", false, kEos);
    if (!bos && !eos) return nullptr;
    Json single = Json::array(), specials = Json::object();
    const auto add = [&](std::optional<uint32_t> id) {
      if (!id) return;
      const std::string token(tokens_[*id]);
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      specials[token] = {
          {"id", token}, {"ids", Json::array({*id})}, {"tokens", Json::array({token})}};
    };
    const auto text = [](const char* name, int type) {
      return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
    };
    add(bos);
    single.push_back(text("A", 0));
    Json pair = single;
    pair.push_back(text("B", 1));
    add(eos);
    if (eos) pair.push_back(single.back());
    return {{"type", "TemplateProcessing"},
            {"single", std::move(single)},
            {"pair", std::move(pair)},
            {"special_tokens", std::move(specials)}};
  }

  Json named_templates() const {
    Json named = Json::array();
    const std::string prefix = std::string(kTemplate) + ".";
    for (const std::string& key : header_.keys()) {
      if (!key.starts_with(prefix)) continue;
      named.push_back({{"name", key.substr(prefix.size())}, {"template", header_.string(key)}});
    }
    return named;
  }

  const GgufHeader& header_;
  std::vector<std::string_view> tokens_;
  std::vector<int32_t> types_;
  GgufPreTokenizer pre_;
  bool is_scored_ = false;  // SentencePiece's BPE
};

}  // namespace

Json gguf_tokenizer_json(const GgufHeader& header) {
  return GgufVocabulary(header).tokenizer_json();
}

Json gguf_tokenizer_config(const GgufHeader& header) {
  return GgufVocabulary(header).config();
}

Json gguf_generation_config(const GgufHeader& header) {
  return GgufVocabulary(header).generation_config();
}

std::unique_ptr<Tokenizer> read_gguf_vocabulary(const TokenizerFile& file) {
  const GgufHeader header(file.bytes, "tokenizer", file.path, GgufHeader::Tensors::skipped);
  const Json config = gguf_tokenizer_config(header);
  return read_tokenizer_json(file, gguf_tokenizer_json(header), &config);
}

std::span<const GgufSpecialToken> gguf_special_tokens() {
  return kSpecialTokens;
}

bool is_read_sampling_key(std::string_view key) {
  return std::ranges::find(kSampling, key, &GgufSampling::key) != std::end(kSampling);
}

std::vector<std::string_view> neutral_vocabulary_keys() {
  return {std::begin(kNeutralKeys), std::end(kNeutralKeys)};
}

}  // namespace octet
