#include "text/chat_template.h"

#include "base/error.h"

namespace octet {
namespace {

const OrderedJson& messages_of(const OrderedJson& context) {
  if (!context.is_object()) {
    throw Error(ErrorCode::bad_data, "[chat] expected a context to be an object, got {}",
                context.type_name());
  }
  const auto it = context.find("messages");
  if (it == context.end()) {
    throw Error(ErrorCode::bad_data, "[chat] expected a context with messages, got none");
  }
  return *it;
}

bool is_assistant(const OrderedJson& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

OrderedJson variables_of(const OrderedJson& context, const OrderedJson& special_tokens) {
  OrderedJson variables = {{"messages", messages_of(context)},
                           {"tools", nullptr},
                           {"documents", nullptr},
                           {"add_generation_prompt", false}};
  for (const auto& [key, value] : special_tokens.items()) variables[key] = value;
  for (const auto& [key, value] : context.items()) {
    if (key != "name" && key != "note" && key != "kwargs") variables[key] = value;
  }
  expect_read(context, "");
  const auto kwargs = context.find("kwargs");
  if (kwargs == context.end() || kwargs->is_null()) return variables;
  if (!kwargs->is_object()) {
    throw Error(ErrorCode::bad_data, "[chat] expected kwargs to be an object, got {}",
                kwargs->type_name());
  }
  for (const auto& [key, value] : kwargs->items()) {
    if (context.contains(key) && key != "name" && key != "note") {
      throw Error(ErrorCode::bad_data, "[chat] expected '{}' once, got it in kwargs as well", key);
    }
    variables[key] = value;
  }
  return variables;
}

}  // namespace

ChatTemplate::ChatTemplate(const ChatTemplateSource& source)
    : limits_(source.limits),
      template_(source.text, limits_),
      special_tokens_(source.special_tokens),
      where_(source.where) {}

jinja::Rendered ChatTemplate::run(const OrderedJson& context, const std::tm& clock) const {
  return template_.render(variables_of(context, special_tokens_),
                          {.clock = clock, .limits = limits_});
}

std::string ChatTemplate::render_prefix(const OrderedJson& context, const std::tm& clock,
                                        size_t n_messages, bool with_prompt) const {
  OrderedJson cut = context;
  OrderedJson& messages = cut["messages"];
  messages.erase(messages.begin() + static_cast<int64_t>(n_messages), messages.end());
  cut["add_generation_prompt"] = with_prompt;
  return render(cut, clock);
}

ByteSpans ChatTemplate::assistant_spans(const OrderedJson& context, const std::tm& clock) const {
  const jinja::Rendered whole = run(context, clock);
  if (template_.has_generation()) return whole.generations;
  const OrderedJson& messages = messages_of(context);
  ByteSpans spans;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_assistant(messages[i])) continue;
    const auto undecided = [&](const std::string& why) {
      throw Error(ErrorCode::bad_data,
                  "[chat] {}: the template has no {{% generation %}}, and what message {} adds "
                  "cannot be told: {}",
                  where_, i, why);
    };
    std::string before, after;
    try {
      before = render_prefix(context, clock, i, true);
      after = render_prefix(context, clock, i + 1, false);
    } catch (const jinja::BudgetExceeded&) {
      throw;
    } catch (const Error& error) {
      undecided(error.what());
    }
    if (!after.starts_with(before)) undecided("the text before it does not begin the text with it");
    if (!whole.text.starts_with(after)) undecided("the text up to it does not begin the whole");
    if (after.size() == before.size()) undecided("it adds nothing");
    spans.emplace_back(before.size(), after.size());
  }
  return spans;
}

namespace {

constexpr std::string_view kChatml =
    R"({%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}
{{- message['content'] + '<|im_end|>' }}
{%- endgeneration %}
{%- else %}
{{- message['content'] + '<|im_end|>' }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %})";

// "User: ...", "Assistant: ...". An answer ends with the end-of-text token where there is one, else
// with the line feed.
constexpr std::string_view kPlain =
    R"({%- for message in messages %}
{%- if message['role'] == 'assistant' %}
{{- 'Assistant: ' }}
{%- generation %}
{{- message['content'] ~ (eos_token if eos_token is defined else '\n') }}
{%- endgeneration %}
{{- '\n' if eos_token is defined else '' }}
{%- else %}
{{- message['role'] | capitalize ~ ': ' ~ message['content'] ~ '\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- 'Assistant: ' }}
{%- endif %})";

}  // namespace

std::string_view built_in_chat_template(std::string_view name) {
  if (name == "chatml") return kChatml;
  if (name == "plain") return kPlain;
  return {};
}

}  // namespace octet
