#include "text/chat_template.h"

namespace octet {
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
