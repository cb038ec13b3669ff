#include "base/base64.h"
#include "text/bert_text.h"
#include "text/tokenizer_files.h"
#include "text/word_pattern.h"

namespace octet {
namespace {

[[noreturn]] void not_supported(const std::string& path, std::string_view part,
                                std::string_view type) {
  bad_tokenizer(path, "{} '{}' is not supported", part, type);
}

constexpr const char* kBehavior = "split behavior";

template <typename E>
E value_named(const std::string& path, std::string_view part, const std::string& name) {
  if (const std::optional<E> value = enum_from_name<E>(name)) return *value;
  not_supported(path, part, name);
}

// {"String": "..."} or {"Regex": "..."}.
struct Pattern {
  bool is_regex = false;
  std::string text;
};

Pattern pattern_of(const std::string& path, const Json& step) {
  const auto it = step.find("pattern");
  for (const char* kind : {"String", "Regex"}) {
    if (it == step.end() || !it->is_object() || !it->contains(kind)) continue;
    if (!it->at(kind).is_string()) break;
    const auto text = it->at(kind).get<std::string>();
    if (text.empty()) bad_tokenizer(path, "expected a pattern, got an empty one");
    return {kind[0] == 'R', text};
  }
  bad_tokenizer(path, "expected a pattern {{\"String\": ...}} or {{\"Regex\": ...}}");
}

// Source: BERT's BasicTokenizer. Accents are stripped where text is made lower case, unless said.
void add_bert_normalizer(const JsonObject& step, Normalizer& normalizer) {
  const bool lower = step.boolean_or("lowercase", true);
  const bool strips = step.has("strip_accents") ? step.boolean_or("strip_accents", lower) : lower;
  add_bert_steps(normalizer, {.cleans_text = step.boolean_or("clean_text", true),
                              .spaces_ideographs = step.boolean_or("handle_chinese_chars", true),
                              .strips_accents = strips,
                              .lower_case = lower});
}

std::shared_ptr<const CharacterMap> character_map(const std::string& path, const JsonObject& step) {
  const auto bytes = decode_base64(step.string("precompiled_charsmap"));
  auto map = bytes ? CharacterMap::parse(*bytes) : std::nullopt;
  if (!map) bad_tokenizer(path, "Precompiled: expected a map of characters, got other data");
  return std::make_shared<const CharacterMap>(*std::move(map));
}

void add_normalizer(const std::string& path, const Json& json, Normalizer& normalizer) {
  const std::string type = json_type(path, "normalizer", json);
  const JsonObject step(json, path);
  if (type == "Sequence") {
    for (const Json& part : json_list(path, json, "normalizers")) {
      add_normalizer(path, part, normalizer);
    }
  } else if (const auto form = enum_from_name<NormalForm>(type)) {
    normalizer.add(std::make_shared<const UnicodeNormalizer>(*form));
  } else if (type == "Lowercase") {
    normalizer.add(MapCharacters{&kLowercase});
  } else if (type == "StripAccents") {
    normalizer.add(MapCharacters{&kDropMarks});
  } else if (type == "BertNormalizer") {
    add_bert_normalizer(step, normalizer);
  } else if (type == "Nmt") {
    normalizer.add(MapCharacters{&kNmt});
  } else if (type == "ByteLevel") {
    normalizer.add(SpellBytes{});
  } else if (type == "Precompiled") {
    normalizer.add(character_map(path, step));
  } else if (type == "Prepend") {
    normalizer.add(PrependText{step.string("prepend")});
  } else if (type == "Strip") {
    normalizer.add(
        StripSpace{step.boolean_or("strip_left", true), step.boolean_or("strip_right", true)});
  } else if (type == "Replace") {
    const Pattern from = pattern_of(path, json);
    if (from.is_regex) {
      normalizer.add(ReplaceMatches{read_pattern(path, from.text), step.string("content")});
    } else {
      normalizer.add(ReplaceText{from.text, step.string("content")});
    }
  } else {
    not_supported(path, "normalizer", type);
  }
}

void add_split(const std::string& path, const Json& json, PreTokenizer& words) {
  const JsonObject step(json, path);
  const Pattern pattern = pattern_of(path, json);
  SplitMatches split;
  split.behavior = value_named<SplitBehavior>(path, kBehavior, step.string("behavior"));
  split.invert = step.boolean_or("invert", false);
  if (!pattern.is_regex) {
    split.literal = pattern.text;
    return words.add(split);
  }
  split.regex = read_pattern(path, pattern.text);
  words.add(split);
}

bool is_one_character(std::string_view text) {
  return !text.empty() && decode_utf8(text, 0).length == text.size();
}

std::string one_character(const std::string& path, const JsonObject& step, const char* key) {
  std::string text = step.string(key);
  if (is_one_character(text)) return text;
  bad_tokenizer(path, "'{}': expected one character, got '{}'", key, text);
}

std::string mark_of(const std::string& path, const JsonObject& step) {
  std::string mark = step.string_or("replacement", "\u2581");
  if (is_one_character(mark)) return mark;
  bad_tokenizer(path, "Metaspace: expected a replacement of one character, got '{}'", mark);
}

PrependScheme prepend_scheme(const std::string& path, const JsonObject& step) {
  const std::string name = step.string_or(
      "prepend_scheme", step.boolean_or("add_prefix_space", true) ? "always" : "never");
  return value_named<PrependScheme>(path, "prepend_scheme", name);
}

void add_pre_tokenizer(const std::string& path, const Json& json, TokenizerParts& parts) {
  const std::string type = json_type(path, "pre-tokenizer", json);
  const JsonObject step(json, path);
  if (type == "Sequence") {
    for (const Json& part : json_list(path, json, "pretokenizers")) {
      add_pre_tokenizer(path, part, parts);
    }
    return;
  }
  if (parts.symbols == Symbols::bytes) not_supported(path, "pre-tokenizer after ByteLevel", type);
  if (type == "ByteLevel") {
    if (step.boolean_or("add_prefix_space", true)) parts.words.add(PrefixSpace{});
    if (step.boolean_or("use_regex", true)) {
      parts.words.add(SplitMatches{read_pattern(path, kGpt2Words), {}});
    }
    parts.symbols = Symbols::bytes;
  } else if (type == "Split") {
    add_split(path, json, parts.words);
  } else if (type == "Digits") {
    const bool is_each = step.boolean_or("individual_digits", false);
    parts.words.add(
        SplitCharacters{is_number, is_each ? SplitBehavior::isolated : SplitBehavior::contiguous});
  } else if (type == "Punctuation") {
    parts.words.add(SplitCharacters{
        is_punctuation,
        value_named<SplitBehavior>(path, kBehavior, step.string_or("behavior", "Isolated"))});
  } else if (type == "CharDelimiterSplit") {
    parts.words.add(
        SplitMatches{nullptr, one_character(path, step, "delimiter"), SplitBehavior::removed});
  } else if (type == "FixedLength") {
    const int64_t length = step.integer("length");
    if (length < 1) bad_tokenizer(path, "FixedLength: expected a length above 0, got {}", length);
    parts.words.add(SplitLengths{length});
  } else if (type == "WhitespaceSplit") {
    parts.words.add(SplitCharacters{is_white_space, SplitBehavior::removed});
  } else if (type == "Whitespace") {
    parts.words.add(SplitCharacters{is_white_space, SplitBehavior::removed});
    parts.words.add(SplitCharacters{is_word_character, SplitBehavior::contiguous});
  } else if (type == "BertPreTokenizer") {
    add_bert_words(parts.words);
  } else if (type == "Metaspace") {
    parts.words.add(MarkSpaces{mark_of(path, step), prepend_scheme(path, step),
                               step.boolean_or("split", true)});
  } else {
    not_supported(path, "pre-tokenizer", type);
  }
}

PieceSpacing spacing_of(const JsonObject& step) {
  return {step.string_or("prefix", "##"), step.boolean_or("cleanup", true)};
}

void add_decoder(const std::string& path, const Json& json, DecodeRules& rules) {
  const std::string type = json_type(path, "decoder", json);
  const JsonObject step(json, path);
  // Each but Strip changes tokens, and Strip the text that Fuse makes of them.
  const bool is_of_text = type == "Strip" || type == "Fuse" || type == "Sequence";
  if (rules.is_fused && !is_of_text) not_supported(path, "decoder behind Fuse", type);
  if (type == "Sequence") {
    for (const Json& part : json_list(path, json, "decoders")) add_decoder(path, part, rules);
  } else if (type == "ByteLevel") {
    rules.characters_of_bytes = true;
  } else if (type == "BPEDecoder") {
    const std::string suffix = step.string_or("suffix", "</w>");
    if (suffix.empty()) bad_tokenizer(path, "BPEDecoder: expected a suffix, got none");
    rules.word_suffix = suffix;
  } else if (type == "ByteFallback") {
    rules.bytes_of_tokens = true;
  } else if (type == "Replace") {
    const Pattern from = pattern_of(path, json);
    if (from.is_regex) not_supported(path, "decoder Replace of", "Regex");
    rules.replaced.add(ReplaceText{from.text, step.string("content")});
  } else if (type == "Metaspace") {
    rules.replaced.add(ReplaceText{mark_of(path, step), " "});
    if (prepend_scheme(path, step) != PrependScheme::never) rules.first_mark = mark_of(path, step);
  } else if (type == "Strip") {
    const bool is_first_space = step.string("content") == " " && step.integer_or("start", 0) == 1 &&
                                step.integer_or("stop", 0) == 0;
    if (!is_first_space) not_supported(path, "decoder", "Strip of other than the first space");
    if (!rules.is_fused) not_supported(path, "decoder without Fuse before it", type);
    rules.strips_space = true;
  } else if (type == "Fuse") {
    rules.is_fused = true;
  } else {
    not_supported(path, "decoder", type);
  }
}

}  // namespace

std::string json_type(const std::string& path, std::string_view part, const Json& json) {
  if (!json.is_object() || !json.contains("type") || !json.at("type").is_string()) {
    bad_tokenizer(path, "{}: expected an object with a type", part);
  }
  return json.at("type").get<std::string>();
}

const Json& json_list(const std::string& path, const Json& json, const std::string& key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_array()) bad_tokenizer(path, "expected a list '{}'", key);
  return *it;
}

std::shared_ptr<const Regex> read_pattern(const std::string& path, std::string_view pattern) {
  try {
    return std::make_shared<const Regex>(pattern, input_limits().regex, RegexSyntax::oniguruma);
  } catch (const Error& error) {
    bad_tokenizer(path, "{}", error.what());
  }
}

Normalizer read_normalizer(const std::string& path, const Json& json) {
  Normalizer normalizer;
  if (!json.is_null()) add_normalizer(path, json, normalizer);
  return normalizer;
}

void read_pre_tokenizer(const std::string& path, const Json& json, TokenizerParts& parts) {
  parts.symbols = Symbols::characters;
  if (!json.is_null()) add_pre_tokenizer(path, json, parts);
}

DecodeRules read_decoder(const std::string& path, const Json& json) {
  DecodeRules rules;
  if (json.is_null()) return rules;
  if (json_type(path, "decoder", json) == "WordPiece") {
    rules.spacing = spacing_of(JsonObject(json, path));
  } else {
    add_decoder(path, json, rules);
    const bool is_changed = !rules.replaced.changes_nothing() || !rules.first_mark.empty();
    if (rules.characters_of_bytes && is_changed)
      not_supported(path, "decoder ByteLevel beside", "Metaspace or Replace");
    if (!rules.word_suffix.empty() && !rules.first_mark.empty())
      not_supported(path, "decoder Metaspace beside", "BPEDecoder");
  }
  return rules;
}

}  // namespace octet
