#include "cli/commands.h"

#include <ctime>
#include <memory>
#include <utility>

#include "base/error.h"
#include "data/chat_messages.h"
#include "infer/model_source.h"
#include "infer/model_texts.h"
#include "text/chat_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

struct ChatFlags {
  std::string source, context, name, now, tokenizer;
  bool mask = false;
};

std::tm clock_of(const std::string& now) {
  std::tm clock{};
  if (now.empty()) {
    const std::time_t time = std::time(nullptr);
    localtime_r(&time, &clock);
    return clock;
  }
  const char* end = strptime(now.c_str(), "%Y-%m-%dT%H:%M:%S", &clock);
  if (end == nullptr || *end != '\0') {
    throw Error(ErrorCode::invalid_argument, "--now: expected 2024-07-26T12:34:56, got '{}'", now);
  }
  return clock;
}

// The context itself, or the one of this name in an array.
OrderedJson context_of(const ChatFlags& flags) {
  OrderedJson json = parse_ordered_json(posix_files().read_text(flags.context), flags.context);
  if (!json.is_array()) return json;
  if (flags.name.empty() && json.size() == 1) return json[0];
  for (const OrderedJson& context : json) {
    const bool has_name = context.is_object() && context.contains("name");
    if (has_name && !flags.name.empty() && context["name"] == flags.name) return context;
  }
  throw Error(ErrorCode::bad_data, "[chat] {}: expected a context named '{}' (--name), got none",
              flags.context, flags.name);
}

bool has_tools(const OrderedJson& context) {
  return context.is_object() && context.contains("tools") && !context["tools"].is_null();
}

// Template of a run: the one that it was trained with. With a tokenizer its special tokens are what
// the template is told, as in training and generation.
ChatTemplateSource source_of(const ChatFlags& flags, bool has_tools) {
  Files& files = posix_files();
  const auto chosen = [&](const ChatTemplates& templates) {
    return has_tools ? templates.with_tools : templates.plain;
  };
  if (is_run(files, flags.source)) {
    ModelSource source = find_model_source(files, flags.source);
    if (!flags.tokenizer.empty()) source.tokenizer = flags.tokenizer;
    return chosen(chat_templates(files, source));
  }
  std::string tokenizer = flags.tokenizer;
  const bool is_folder = files.exists(flags.source) && files.is_directory(flags.source);
  if (tokenizer.empty() && is_folder && !special_tokens_of_folder(files, flags.source))
    tokenizer = find_tokenizer(files, flags.source).value_or("");
  if (tokenizer.empty()) return find_chat_template(files, flags.source, has_tools);
  return chosen(find_chat_templates(files, *make_tokenizer(files, tokenizer),
                                    {.name = flags.source, .tokenizer = tokenizer}));
}

void run_render(const ChatFlags& flags) {
  const std::tm clock = clock_of(flags.now);
  OrderedJson context = context_of(flags);
  if (context.is_object() && context.contains("messages")) normalize_messages(context["messages"]);
  const ChatTemplate chat(source_of(flags, has_tools(context)));
  if (flags.mask) {
    const OrderedJson mask = {{"utf8_spans", chat.assistant_spans(context, clock)}};
    write_out(mask.dump() + "\n");
  } else {
    write_data(chat.render(context, clock));
  }
}

}  // namespace

void add_chat_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* chat = app.add_subcommand("chat", "chat templates");
  chat->require_subcommand(1);
  CLI::App* render = chat->add_subcommand("render", "the text that a template makes of messages");
  render
      ->add_option("--template", flags->source,
                   "a template, tokenizer_config.json, a model folder, a run, or chatml or plain")
      ->required();
  render->add_option("--tokenizer", flags->tokenizer,
                     "whose special tokens the template is told: a file, or a model folder");
  render->add_option("--context", flags->context, "JSON: messages, tools, ..., or an array of such")
      ->required();
  render->add_option("--name", flags->name, "which context of an array");
  render->add_flag("--mask", flags->mask, "print the bytes that the assistant said instead");
  render->add_option("--now", flags->now,
                     "the time that the template is told: YYYY-MM-DDThh:mm:ss");
  render->callback([flags] { run_render(*flags); });
}

}  // namespace octet
