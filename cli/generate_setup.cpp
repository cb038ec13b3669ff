#include "cli/generate_setup.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "cli/strict_flag.h"
#include "data/chat_tokens.h"
#include "infer/stop_tokens.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

ChatTemplateSource template_source(const Files& files, const std::string& name,
                                   const std::string& model, const Tokenizer& tokenizer) {
  const std::string found =
      name == "auto" ? ChatEncoder(files, tokenizer, name, model).template_name() : name;
  return find_chat_template(files, found, /*has_tools=*/false);
}

// Recipes of eight bits measure scales over the whole batch: a text would depend on those beside
// it.
std::string generation_recipe(const ModelSource& source, const GenerateFlags& flags,
                              const Log& log) {
  const std::string& name = flags.recipe.empty() ? source.recipe : flags.recipe;
  if (!find_recipe(name).linears.quantized) return name;
  if (flags.recipe.empty()) return "bf16";
  log.warning("--recipe {}: scales are measured over a batch, so a text depends on those beside it",
              name);
  return name;
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
  Files& files = posix_files();
  const Log log = make_log(options);
  GenerateSetup setup;
  ModelSource& source = setup.source =
      find_model_source(files, flags.model, log, unknown_keys(flags.strict));
  if (!flags.tokenizer.empty()) source.tokenizer = flags.tokenizer;
  source.recipe = generation_recipe(source, flags, log);
  if (source.tokenizer.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--tokenizer: expected `bytes` or a tokenizer's file, got none: '{}' does not say",
                flags.model);
  }
  setup.tokenizer = make_tokenizer(files, source.tokenizer);
  if (flags.context > source.seq) {
    throw Error(ErrorCode::invalid_argument, "--context: expected at most the model's {}, got {}",
                source.seq, flags.context);
  }
  setup.context = flags.context > 0 ? flags.context : source.seq;
  setup.options.max_tokens = flags.max_tokens;
  setup.options.stop_tokens = stop_tokens(files, source.folder, *setup.tokenizer);
  setup.options.stop_texts = flags.stop;
  return setup;
}

std::vector<int32_t> prompt_tokens(const GenerateSetup& setup, const std::string& text) {
  std::vector<int32_t> tokens = setup.tokenizer->prefix();
  setup.tokenizer->encode(text, {}, tokens);
  if (tokens.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--prompt: expected some text, got none: the tokenizer has no token to begin with");
  }
  return tokens;
}

}  // namespace octet
