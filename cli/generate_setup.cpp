#include "cli/generate_setup.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "cli/model_folder.h"
#include "infer/model_texts.h"
#include "train/eval_scales.h"

namespace octet {

ChatPrompts::ChatPrompts(const ChatTemplates& templates, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), plain_(templates.plain), with_tools_(templates.with_tools) {
  find_end();
}

std::string ChatPrompts::render(OrderedJson context, bool with_prompt) const {
  const std::time_t now = std::time(nullptr);
  std::tm clock{};
  localtime_r(&now, &clock);
  context["add_generation_prompt"] = with_prompt;
  const bool has_tools = context.contains("tools") && !context["tools"].is_null();
  return (has_tools ? with_tools_ : plain_).render(context, clock);
}

std::vector<int32_t> ChatPrompts::tokens(const std::string& rendered) const {
  return tokenizer_.encode(rendered, {.special = SpecialText::parse});
}

void ChatPrompts::find_end() {
  constexpr std::string_view kSaid = "abcxyz";
  const OrderedJson messages = {{{"role", "user"}, {"content", "a"}},
                                {{"role", "assistant"}, {"content", kSaid}}};
  std::string behind;
  try {
    const std::string text = render({{"messages", messages}}, false);
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

ChatPrompts& GenerateSetup::chat_prompts(const std::string& name) {
  if (chat) return *chat;
  chat = std::make_unique<ChatPrompts>(chat_templates(posix_files(), source, *tokenizer, name),
                                       *tokenizer);
  if (chat->end_token()) options.stop_tokens.push_back(*chat->end_token());
  if (!chat->end_text().empty()) options.stop_texts.push_back(chat->end_text());
  return *chat;
}

GenerateSetup generate_setup(const GenerateFlags& flags, const GlobalOptions& options) {
  GenerateSetup setup;
  static_cast<GenerationSetup&>(setup) =
      setup_generation(posix_files(),
                       {.model = model_path(posix_files(), flags.model),
                        .tokenizer = flags.tokenizer,
                        .recipe = flags.recipe,
                        .weights = flags.weights,
                        .unknown_keys = unknown_keys(flags.strict),
                        .nonfinite = nonfinite_weights(flags.allow_nonfinite),
                        .context = flags.context},
                       make_log(options));
  if (!flags.recipe.empty())
    setup.source.recipe_options = forward_options(setup.source, flags.recipe);
  calibrate_source(setup.source, flags.calib, options);
  setup.options.max_tokens = flags.max_tokens;
  setup.options.stop_texts = flags.stop;
  return setup;
}

}  // namespace octet
