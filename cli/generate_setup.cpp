#include "cli/generate_setup.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "cli/strict_flag.h"
#include "data/chat_tokens.h"

namespace octet {
namespace {

ChatTemplateSource template_source(const Files& files, const std::string& name,
                                   const std::string& model, const Tokenizer& tokenizer) {
  const std::string found =
      name == "auto" ? ChatEncoder(files, tokenizer, name, model).template_name() : name;
  return find_chat_template(files, found, /*has_tools=*/false);
}

}  // namespace

ChatPrompts::ChatPrompts(const Files& files, const std::string& name, const std::string& model,
                         const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), template_(template_source(files, name, model, tokenizer)) {
  find_end();
}

std::string ChatPrompts::render(const OrderedJson& messages, bool with_prompt) const {
  const std::time_t now = std::time(nullptr);
  std::tm clock{};
  localtime_r(&now, &clock);
  OrderedJson context = OrderedJson::object();
  context["messages"] = messages;
  context["add_generation_prompt"] = with_prompt;
  return template_.render(context, clock);
}

std::vector<int32_t> ChatPrompts::tokens(const OrderedJson& messages) const {
  return tokenizer_.encode(render(messages, true), {.special = SpecialText::parse});
}

void ChatPrompts::find_end() {
  constexpr std::string_view kSaid = "abcxyz";
  const OrderedJson messages = {{{"role", "user"}, {"content", "a"}},
                                {{"role", "assistant"}, {"content", kSaid}}};
  std::string behind;
  try {
    const std::string text = render(messages, false);
    const size_t at = text.rfind(kSaid);
    if (at == std::string::npos) return;
    behind = text.substr(at + kSaid.size());
  } catch (const Error&) {
    return;  // a template that takes no such conversation
  }
  const size_t first = behind.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return;
  const auto ids = tokenizer_.encode(behind.substr(first), {.special = SpecialText::parse});
  const std::string token = ids.empty() ? "" : tokenizer_.decode(std::span(ids).first(1));
  if (!token.empty() && tokenizer_.special_id(token) == ids.front()) {
    end_token_ = ids.front();
  } else {
    end_text_ = behind.substr(0, behind.find_last_not_of(" \t\r\n") + 1);
  }
}

GenerateSetup generate_setup(const GenerateFlags& flags, const GlobalOptions& options) {
  GenerateSetup setup;
  static_cast<GenerationSetup&>(setup) =
      setup_generation(posix_files(),
                       {.model = flags.model,
                        .tokenizer = flags.tokenizer,
                        .recipe = flags.recipe,
                        .weights = flags.weights,
                        .unknown_keys = unknown_keys(flags.strict),
                        .nonfinite = nonfinite_weights(flags.allow_nonfinite),
                        .context = flags.context},
                       make_log(options));
  setup.options.max_tokens = flags.max_tokens;
  setup.options.stop_texts = flags.stop;
  return setup;
}

}  // namespace octet
