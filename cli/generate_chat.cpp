#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/ordered_json.h"
#include "cli/generate_setup.h"
#include "cli/generation_speed.h"
#include "infer/picture_prompt.h"

namespace octet {
namespace {

constexpr int64_t kLongestChat = 4096;  // tokens, unless --context says otherwise

// With U+FFFD in the place of bytes that are no UTF-8, as in JSON output: an answer may end within
// a character, and templates take text alone.
std::string whole_characters(const std::string& text) {
  return OrderedJson::parse(json_line(text)).get<std::string>();
}

class Conversation {
 public:
  Conversation(const GenerateFlags& flags, const GlobalOptions& options)
      : flags_(flags), global_(options), setup_(generate_setup(flags, options)) {
    chat_ = &setup_.chat_prompts(flags.chat_template);
    if (flags.context == 0) setup_.context = std::min(setup_.context, kLongestChat);
    backend_ = open_backend(options, {.same_rows = true});
    model_ = setup_.make_model({.capacity = setup_.context, .picks = options.device != "cpu"},
                               text_machine(backend_, make_log(options)));
    if (!flags.system.empty()) say("system", flags.system);
  }

  void turn(const std::string& line) {
    say("user", line);
    Prompt prompt{.tokens = chat_->tokens(chat_->render({{"messages", messages_}})),
                  .sampling = flags_.sampling};
    expect_no_pictures(setup_.source.spec, prompt.tokens, "--chat");
    prompt.n_held = held_of(prompt.tokens);
    const int64_t left = setup_.context - std::ssize(prompt.tokens);
    if (left <= 0) {
      throw Error(ErrorCode::invalid_argument,
                  "--chat: expected a conversation of fewer than {} tokens, got {}", setup_.context,
                  prompt.tokens.size());
    }
    GenerateOptions options = setup_.options;
    options.max_tokens = std::min(options.max_tokens, left);
    if (!global_.json) {
      options.on_text = [](size_t, std::string_view text) {
        write_data(text);
        flush_output();
      };
    }
    Completion reply;
    speed_.time([&] {
      reply = generate(*model_, *setup_.tokenizer, {prompt}, options).front();
      return std::ssize(reply.tokens);
    });
    held_ = prompt.tokens;
    held_.insert(held_.end(), reply.tokens.begin(), reply.tokens.end());
    if (!held_.empty()) held_.pop_back();  // the last one was never read
    say("assistant", reply.text);
    if (global_.json) {
      const OrderedJson row = {{"role", "assistant"},
                               {"content", reply.text},
                               {"tokens", reply.tokens.size()},
                               {"stop", enum_name(reply.stop)}};
      write_out(json_line(row));
    }
    write_data("\n");
    flush_output();
  }

  // Tells the speed over all turns.
  void tell_speed() const { speed_.tell(make_log(global_)); }

 private:
  void say(std::string_view role, const std::string& text) {
    messages_.push_back({{"role", role}, {"content", whole_characters(text)}});
  }

  // How many tokens of the prompt the model holds from the turn before; not its last one.
  int64_t held_of(const std::vector<int32_t>& tokens) const {
    const auto same = std::mismatch(tokens.begin(), tokens.end() - 1, held_.begin(), held_.end());
    return same.first - tokens.begin();
  }

  const GenerateFlags& flags_;
  const GlobalOptions& global_;
  GenerateSetup setup_;
  ChatPrompts* chat_ = nullptr;  // of the setup
  Backend backend_;
  std::unique_ptr<TextModel> model_;
  OrderedJson messages_ = OrderedJson::array();
  std::vector<int32_t> held_;
  GenerationSpeed speed_;
};

}  // namespace

void run_chat(const GenerateFlags& flags, const GlobalOptions& options) {
  Conversation conversation(flags, options);
  if (!flags.prompt.empty()) {
    conversation.turn(flags.prompt);
    return conversation.tell_speed();
  }
  const bool asks = ::isatty(STDIN_FILENO) == 1 && !options.json;
  std::string line;
  while (true) {
    if (asks) {
      write_data("> ");
      flush_output();
    }
    if (!std::getline(std::cin, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) conversation.turn(line);
  }
  conversation.tell_speed();
}

}  // namespace octet
