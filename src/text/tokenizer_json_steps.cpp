#include "text/tokenizer_files.h"

namespace octet {
namespace {

std::string type_of(const std::string& path, std::string_view part, const Json& json) {
  if (!json.is_object() || !json.contains("type") || !json.at("type").is_string()) {
    bad_tokenizer(path, "{}: expected an object with a type", part);
  }
  return json.at("type").get<std::string>();
}

[[noreturn]] void not_supported(const std::string& path, std::string_view part,
                                std::string_view type) {
  bad_tokenizer(path, "{} '{}' is not supported", part, type);
}

const Json& list_of(const std::string& path, const Json& json, const std::string& key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_array()) bad_tokenizer(path, "expected a list '{}'", key);
  return *it;
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

void add_normalizer(const std::string& path, const Json& json, Normalizer& normalizer) {
  const std::string type = type_of(path, "normalizer", json);
  const JsonObject step(json, path);
  const auto form = [&](NormalForm known) {
    normalizer.add(std::make_shared<const UnicodeNormalizer>(known));
  };
  if (type == "Sequence") {
    for (const Json& part : list_of(path, json, "normalizers")) {
      add_normalizer(path, part, normalizer);
    }
  } else if (type == "NFC") {
    form(NormalForm::nfc);
  } else if (type == "NFD") {
    form(NormalForm::nfd);
  } else if (type == "NFKC") {
    form(NormalForm::nfkc);
  } else if (type == "NFKD") {
    form(NormalForm::nfkd);
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

SplitBehavior behavior_of(const std::string& path, const std::string& name) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  not_supported(path, "split behavior", name);
}

void add_split(const std::string& path, const Json& json, PreTokenizer& words) {
  const JsonObject step(json, path);
  const Pattern pattern = pattern_of(path, json);
  SplitMatches split;
  split.behavior = behavior_of(path, step.string("behavior"));
  split.invert = step.boolean_or("invert", false);
  if (!pattern.is_regex) {
    split.literal = pattern.text;
    return words.add(split);
  }
  // A known pattern leaves nothing between its matches.
  const bool keeps_matches = split.behavior == SplitBehavior::isolated ||
                             (split.behavior == SplitBehavior::removed && split.invert);
  const std::optional<WordPattern> known = known_pattern(pattern.text);
  if (known && keeps_matches) {
    return words.add(SplitWords{std::make_shared<const WordScanner>(*known)});
  }
  split.regex = read_pattern(path, pattern.text);
  words.add(split);
}

std::string mark_of(const std::string& path, const JsonObject& step) {
  const std::string mark = step.string_or("replacement", "\u2581");
  if (!mark.empty() && decode_utf8(mark, 0).length == mark.size()) return mark;
  bad_tokenizer(path, "Metaspace: expected a replacement of one character, got '{}'", mark);
}

PrependScheme prepend_scheme(const std::string& path, const JsonObject& step) {
  const std::string name = step.string_or(
      "prepend_scheme", step.boolean_or("add_prefix_space", true) ? "always" : "never");
  if (name == "always") return PrependScheme::always;
  if (name == "first") return PrependScheme::first;
  if (name == "never") return PrependScheme::never;
  not_supported(path, "prepend_scheme", name);
}

void add_pre_tokenizer(const std::string& path, const Json& json, TokenizerParts& parts) {
  const std::string type = type_of(path, "pre-tokenizer", json);
  const JsonObject step(json, path);
  if (type == "Sequence") {
    for (const Json& part : list_of(path, json, "pretokenizers")) {
      add_pre_tokenizer(path, part, parts);
    }
    return;
  }
  if (parts.symbols == Symbols::bytes) not_supported(path, "pre-tokenizer after ByteLevel", type);
  if (type == "ByteLevel") {
    if (step.boolean_or("add_prefix_space", true)) parts.words.add(PrefixSpace{});
    if (step.boolean_or("use_regex", true)) {
      parts.words.add(SplitWords{std::make_shared<const WordScanner>(WordPattern::gpt2)});
    }
    parts.symbols = Symbols::bytes;
  } else if (type == "Split") {
    add_split(path, json, parts.words);
  } else if (type == "Digits") {
    SplitDigits digits;
    digits.classes = std::make_shared<const CharClasses>();
    if (step.boolean_or("individual_digits", false)) digits.behavior = SplitBehavior::isolated;
    parts.words.add(std::move(digits));
  } else if (type == "Metaspace") {
    parts.words.add(MarkSpaces{mark_of(path, step), prepend_scheme(path, step),
                               step.boolean_or("split", true)});
  } else {
    not_supported(path, "pre-tokenizer", type);
  }
}

// The ids of one special token of a template.
std::vector<int32_t> template_ids(const std::string& path, const JsonObject& processor,
                                  const std::string& name, int64_t vocab) {
  const Json& token = processor.object("special_tokens").at(name);
  std::vector<int32_t> ids;
  for (const Json& id : list_of(path, token, "ids")) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab) {
      bad_tokenizer(path, "special token '{}': expected ids from 0 to {}", name, vocab - 1);
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

void add_template(const std::string& path, const Json& json, TokenizerParts& parts) {
  const JsonObject processor(json, path);
  bool is_behind = false;
  for (const Json& item : list_of(path, json, "single")) {
    if (item.is_object() && item.contains("Sequence")) {
      if (is_behind) bad_tokenizer(path, "expected one text in the template, got two");
      is_behind = true;
    } else if (item.is_object() && item.contains("SpecialToken")) {
      const std::string name = JsonObject(item, path).object("SpecialToken").string("id");
      std::vector<int32_t>& side = is_behind ? parts.suffix : parts.prefix;
      for (const int32_t id : template_ids(path, processor, name, parts.surfaces.size())) {
        side.push_back(id);
      }
    } else {
      bad_tokenizer(path, "template: expected a Sequence or a SpecialToken");
    }
  }
}

void add_decoder(const std::string& path, const Json& json, DecodeRules& rules) {
  const std::string type = type_of(path, "decoder", json);
  const JsonObject step(json, path);
  if (type == "Sequence") {
    for (const Json& part : list_of(path, json, "decoders")) add_decoder(path, part, rules);
  } else if (type == "ByteFallback") {
    rules.bytes_of_tokens = true;
  } else if (type == "Replace") {
    const Pattern from = pattern_of(path, json);
    if (from.is_regex) not_supported(path, "decoder Replace of", "Regex");
    rules.replaced.add(ReplaceText{from.text, step.string("content")});
  } else if (type == "Metaspace") {
    rules.replaced.add(ReplaceText{mark_of(path, step), " "});
    rules.strips_space = prepend_scheme(path, step) != PrependScheme::never;
  } else if (type == "Strip") {
    const bool is_first_space = step.string("content") == " " && step.integer_or("start", 0) == 1 &&
                                step.integer_or("stop", 0) == 0;
    if (!is_first_space) not_supported(path, "decoder", "Strip of other than the first space");
    rules.strips_space = true;
  } else if (type != "ByteLevel" && type != "Fuse") {
    not_supported(path, "decoder", type);
  }
}

}  // namespace

std::shared_ptr<const Regex> read_pattern(const std::string& path, const std::string& pattern) {
  try {
    return std::make_shared<const Regex>(pattern);
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

void read_post_processor(const std::string& path, const Json& json, TokenizerParts& parts) {
  if (json.is_null()) return;
  const std::string type = type_of(path, "post-processor", json);
  if (type == "Sequence") {
    for (const Json& part : list_of(path, json, "processors")) {
      read_post_processor(path, part, parts);
    }
  } else if (type == "TemplateProcessing") {
    add_template(path, json, parts);
  } else if (type != "ByteLevel") {
    not_supported(path, "post-processor", type);
  }
}

DecodeRules read_decoder(const std::string& path, const Json& json) {
  DecodeRules rules;
  if (!json.is_null()) add_decoder(path, json, rules);
  return rules;
}

}  // namespace octet
