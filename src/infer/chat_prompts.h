// Prompts of a model that talks: conversations by its chat template, and what ends its answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/chat_tokens.h"
#include "text/chat_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace octet {

// A chat template, which turns messages into tokens; the tokenizer outlives it.
class ChatPrompts {
 public:
  ChatPrompts(const ChatTemplates& templates, const Tokenizer& tokenizer);

  // Up to where the assistant begins to speak; the context as ChatTemplate takes it. A template
  // that takes lists of parts alone gets each text as one.
  std::string render(const OrderedJson& context) const { return render(context, true); }
  std::vector<int32_t> tokens(const std::string& rendered) const;
  // True if the template of conversations without tools takes lists of parts alone.
  bool takes_parts_alone() const { return plain_contents_ == ChatEncoder::Contents::parts_alone; }
  // End of the assistant's turn, by the template: a special token, or else a text; empty where it
  // cannot be told.
  std::optional<int32_t> end_token() const { return end_token_; }
  const std::string& end_text() const { return end_text_; }

 private:
  std::string render(OrderedJson context, bool with_prompt) const;
  void find_end();

  const Tokenizer& tokenizer_;
  ChatTemplate plain_, with_tools_;
  ChatEncoder::Contents plain_contents_, tools_contents_;
  std::optional<int32_t> end_token_;
  std::string end_text_;
};

}  // namespace octet
