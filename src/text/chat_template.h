// The chat template of a model, and what it makes of a conversation.
//
// A context is an object with `messages`, and where there are any `tools`, `documents`,
// `add_generation_prompt` and `kwargs`, an object of further variables; other keys but `name` and
// `note` are variables as well. As in transformers, tools and documents are None when absent, and
// the special tokens of tokenizer_config.json (bos_token, ...) are variables.
//
// Errors: Error{bad_data}, "[chat] ..." or "[template] line N: ..."; jinja::TemplateRefusal where
// the template calls raise_exception.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/ordered_json.h"
#include "text/jinja/template.h"

namespace octet {

struct ChatTemplateSource {
  std::string text;
  std::string where;                                   // for messages: the file or built-in name
  OrderedJson special_tokens = OrderedJson::object();  // names and texts
  TemplateLimits limits = input_limits().templates;
};

// `path`: the name of a built-in template (chatml, plain); a file of a template; a JSON file with
// the key chat_template (text, or a list of {name, template}); or a model's folder with
// a processor_config.json that has the key, chat_template.jinja, chat_template.json or
// tokenizer_config.json, in this order. Of several named templates tool_use is taken for a context
// with tools, else default.
ChatTemplateSource find_chat_template(const Files& files, const std::string& path, bool has_tools);

// True if a model's folder says that it has one; whatever is wrong with it is for
// find_chat_template() to tell. Throws Error{bad_data} where tokenizer_config.json is no JSON.
bool has_chat_template(const Files& files, const std::string& folder);

// The special tokens that the files of a folder name, null for one that they say is none; nothing
// where no file speaks of them. Throws Error{bad_data} where one is no JSON object.
std::optional<OrderedJson> special_tokens_of_folder(const Files& files, const std::string& folder);

// The ones of these tokens that are there.
OrderedJson without_nulls(const OrderedJson& tokens);

using ByteSpans = std::vector<std::pair<size_t, size_t>>;

class ChatTemplate {
 public:
  explicit ChatTemplate(const ChatTemplateSource& source);

  std::string render(const OrderedJson& context, const std::tm& clock) const {
    return run(context, clock).text;
  }
  // The first messages alone, with or without a prompt for the next one.
  std::string render_prefix(const OrderedJson& context, const std::tm& clock, size_t n_messages,
                            bool with_prompt) const;

  // Spans of what the assistant said in the rendered text: those of {% generation %}, in bytes.
  // Where the template has none, each assistant's message is what render() adds to the text before
  // it, which ends with the generation prompt; every such text must be a prefix of the whole, or it
  // cannot be decided and throws.
  ByteSpans assistant_spans(const OrderedJson& context, const std::tm& clock) const;

  bool has_generation() const { return template_.has_generation(); }

 private:
  jinja::Rendered run(const OrderedJson& context, const std::tm& clock) const;

  TemplateLimits limits_;
  jinja::Template template_;
  OrderedJson special_tokens_;
  std::string where_;
};

// The two templates of our own, by name; empty where there is none of this name.
std::string_view built_in_chat_template(std::string_view name);

}  // namespace octet
