// What the ways to generate share: the flags, and the model with its tokenizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/backend.h"
#include "cli/common.h"
#include "infer/generation_setup.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace octet {

struct GenerateFlags {
  std::string model, prompt, prompts, tokenizer, recipe, chat_template = "auto", system;
  std::vector<std::string> stop;
  int64_t max_tokens = 200, batch = 1, context = 0;
  FrozenFormat weights = FrozenFormat::as_computed;
  Sampling sampling = {};
  bool chat = false, strict = false, allow_nonfinite = false;
};

// The model's chat template, which turns messages into tokens.
class ChatPrompts {
 public:
  // `name`: as find_chat_template takes it, or auto: the model's own, else chatml or plain by the
  // tokenizer.
  ChatPrompts(const Files& files, const std::string& name, const std::string& model,
              const Tokenizer& tokenizer);

  // Up to where the assistant begins to speak.
  std::vector<int32_t> tokens(const OrderedJson& messages) const;
  // What ends the assistant's turn, by the template: a special token, or else a text; empty where
  // it cannot be told.
  std::optional<int32_t> end_token() const { return end_token_; }
  const std::string& end_text() const { return end_text_; }

 private:
  std::string render(const OrderedJson& messages, bool with_prompt) const;
  void find_end();

  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  std::optional<int32_t> end_token_;
  std::string end_text_;
};

struct GenerateSetup : GenerationSetup {
  std::unique_ptr<ChatPrompts> chat;  // where --chat or a prompt asks for it
};

// Finds the model and reads its tokenizer and configuration; no weights yet.
GenerateSetup generate_setup(const GenerateFlags& flags, const GlobalOptions& options);

// A conversation on standard input, a line a message of the user; with --prompt that one alone.
void run_chat(const GenerateFlags& flags, const GlobalOptions& options);

}  // namespace octet
