// The post-processors of tokenizer.json: what stands around one text and around two.
#include <algorithm>

#include "text/tokenizer_files.h"

namespace octet {
namespace {

using Kind = TemplatePart::Kind;

// The ids of one special token of a template.
std::vector<int32_t> template_ids(const std::string& path, const JsonObject& processor,
                                  const std::string& name, int64_t vocab) {
  const Json& token = processor.object("special_tokens").at(name);
  std::vector<int32_t> ids;
  for (const Json& id : json_list(path, token, "ids")) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab) {
      bad_tokenizer(path, "special token '{}': expected ids from 0 to {}", name, vocab - 1);
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

int32_t type_id(const std::string& path, const JsonObject& part) {
  const int64_t type = part.integer_or("type_id", 0);
  if (type >= 0 && type <= INT32_MAX) return static_cast<int32_t>(type);
  bad_tokenizer(path, "template: expected a type_id from 0 to {}, got {}", INT32_MAX, type);
}

std::vector<TemplatePart> template_parts(const std::string& path, const JsonObject& processor,
                                         const Json& list, int64_t vocab) {
  std::vector<TemplatePart> parts;
  for (const Json& item : list) {
    if (item.is_object() && item.contains("Sequence")) {
      const JsonObject text = JsonObject(item, path).object("Sequence");
      const std::string name = text.string("id");
      if (name != "A" && name != "B") {
        bad_tokenizer(path, "template: expected a Sequence A or B, got '{}'", name);
      }
      parts.push_back(
          {name == "A" ? Kind::first_text : Kind::second_text, -1, type_id(path, text)});
    } else if (item.is_object() && item.contains("SpecialToken")) {
      const JsonObject token = JsonObject(item, path).object("SpecialToken");
      for (const int32_t id : template_ids(path, processor, token.string("id"), vocab)) {
        parts.push_back({Kind::token, id, type_id(path, token)});
      }
    } else {
      bad_tokenizer(path, "template: expected a Sequence or a SpecialToken");
    }
  }
  return parts;
}

int64_t count_of(const std::vector<TemplatePart>& parts, Kind kind) {
  return std::ranges::count(parts, kind, &TemplatePart::kind);
}

TextTemplate read_template(const std::string& path, const Json& json, int64_t vocab) {
  const JsonObject processor(json, path);
  TextTemplate around = bare_template();
  around.single = template_parts(path, processor, json_list(path, json, "single"), vocab);
  const int64_t n_texts = std::ssize(around.single) - count_of(around.single, Kind::token);
  if (n_texts != 1) {
    bad_tokenizer(path, "expected one text in the template, got {}", n_texts);
  }
  if (!processor.has("pair")) return around;
  around.pair = template_parts(path, processor, json_list(path, json, "pair"), vocab);
  const int64_t n_first = count_of(around.pair, Kind::first_text),
                n_second = count_of(around.pair, Kind::second_text);
  if (n_first != 1 || n_second != 1) {
    bad_tokenizer(path, "expected A and B once in the template of pairs, got {} and {}", n_first,
                  n_second);
  }
  return around;
}

// ["[SEP]", 102]
int32_t named_id(const std::string& path, const Json& json, const std::string& key, int64_t vocab) {
  const Json& pair = json_list(path, json, key);
  if (pair.size() == 2 && pair[1].is_number_integer()) {
    const auto id = pair[1].get<int64_t>();
    if (id >= 0 && id < vocab) return static_cast<int32_t>(id);
  }
  bad_tokenizer(path, "post-processor: expected '{}' to be a token and its id from 0 to {}", key,
                vocab - 1);
}

void add_processor(const std::string& path, const Json& json, TokenizerParts& parts) {
  const std::string type = json_type(path, "post-processor", json);
  const int64_t vocab = parts.surfaces.size();
  if (type == "Sequence") {
    for (const Json& part : json_list(path, json, "processors")) add_processor(path, part, parts);
    return;
  }
  if (type == "ByteLevel") return;  // of offsets alone
  if (!parts.around.single.empty()) {
    bad_tokenizer(path, "expected one post-processor with special tokens, got '{}' as well", type);
  }
  if (type == "TemplateProcessing") {
    parts.around = read_template(path, json, vocab);
  } else if (type == "BertProcessing") {
    parts.around =
        bert_template(named_id(path, json, "cls", vocab), named_id(path, json, "sep", vocab));
  } else if (type == "RobertaProcessing") {
    parts.around =
        roberta_template(named_id(path, json, "cls", vocab), named_id(path, json, "sep", vocab));
  } else {
    bad_tokenizer(path, "post-processor '{}' is not supported", type);
  }
}

}  // namespace

void read_post_processor(const std::string& path, const Json& json, TokenizerParts& parts) {
  if (!json.is_null()) add_processor(path, json, parts);
  if (parts.around.single.empty()) parts.around = bare_template();
  parts.prefix = tokens_before(parts.around.single);
  parts.suffix = tokens_behind(parts.around.single);
}

}  // namespace octet
