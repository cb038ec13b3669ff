// Replies of `octet serve`: objects of OpenAI's API, whole or as server-sent events.
#pragma once

#include <string>
#include <vector>

#include "cli/serve_engine.h"
#include "cli/serve_request.h"
#include "infer/embed.h"

namespace octet {

class TextAnswer {
 public:
  TextAnswer(const ServedModel& model, TextRequest request);

  const TextRequest& request() const { return request_; }

  // All at once.
  void add(TextEvent event);
  OrderedJson whole();

  // The reply as events, each a line "data: ..." and an empty one. begin() has the roles of a chat.
  std::string begin() const;
  std::string part(const TextEvent& event);
  std::string end() const;  // the usage, where it was asked for, and [DONE]

 private:
  struct Choice {
    std::string text;
    std::vector<TokenScore> tokens;
    Stop stop = Stop::none;
    int64_t offset = 0;  // characters before the next token
  };

  OrderedJson object(std::string_view kind) const;
  OrderedJson chunk(size_t index, OrderedJson delta, OrderedJson scores, Stop stop) const;
  OrderedJson logprobs(const std::vector<TokenScore>& tokens, Choice& choice);
  OrderedJson token_json(const TokenScore& score) const;
  OrderedJson usage() const;
  std::string token_text(int32_t id) const { return model_.tokenizer.decode(std::span(&id, 1)); }

  const ServedModel& model_;
  TextRequest request_;
  std::string id_;
  int64_t created_ = 0, n_tokens_ = 0;
  std::vector<Choice> choices_;
};

OrderedJson embeddings_json(const ServedModel& model, const EmbeddingRequest& request,
                            const Embeddings& rows);

}  // namespace octet
