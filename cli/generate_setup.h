// What the ways to generate share: the flags, and the model with its tokenizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/backend.h"
#include "cli/calib_option.h"
#include "cli/common.h"
#include "cli/model_flags.h"
#include "infer/generation_setup.h"
#include "text/chat_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace octet {

struct GenerateFlags : ModelFlags {
  std::string prompt, prompts, recipe, chat_template = "auto", system;
  std::vector<std::string> stop;
  int64_t max_tokens = 200, batch = 1, context = 0;
  FrozenFormat weights = FrozenFormat::as_computed;
  Sampling sampling = {};
  CalibFlags calib = {};
  bool chat = false;
};

// The model's chat template, which turns messages into tokens.
class ChatPrompts {
 public:
  ChatPrompts(const ChatTemplates& templates, const Tokenizer& tokenizer);

  // Up to where the assistant begins to speak; the context as ChatTemplate takes it.
  std::string render(const OrderedJson& context) const { return render(context, true); }
  std::vector<int32_t> tokens(const std::string& rendered) const;
  // What ends the assistant's turn, by the template: a special token, or else a text; empty where
  // it cannot be told.
  std::optional<int32_t> end_token() const { return end_token_; }
  const std::string& end_text() const { return end_text_; }

 private:
  std::string render(OrderedJson context, bool with_prompt) const;
  void find_end();

  const Tokenizer& tokenizer_;
  ChatTemplate plain_, with_tools_;
  std::optional<int32_t> end_token_;
  std::string end_text_;
};

struct GenerateSetup : GenerationSetup {
  // Made when it is first asked for; what ends its turns then ends texts. `name`: as --template has
  // it.
  ChatPrompts& chat_prompts(const std::string& name);
  std::unique_ptr<ChatPrompts> chat = {};
};

// Finds the model and reads its tokenizer and configuration; no weights yet.
GenerateSetup generate_setup(const GenerateFlags& flags, const GlobalOptions& options);

// A conversation on standard input, a line a message of the user; with --prompt that one alone.
void run_chat(const GenerateFlags& flags, const GlobalOptions& options);

}  // namespace octet
