// Bodies of requests to `octet serve`: every field is honoured, or asks for nothing, or is refused
// by name (docs/serving.md has the table).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/generate_setup.h"
#include "cli/serve_engine.h"
#include "cli/serve_pictures.h"

namespace octet {

// Model that requests are read against. References outlive it.
struct ServedModel {
  std::string name;
  const Tokenizer& tokenizer;
  const ChatPrompts* chat = nullptr;         // of a model that writes text
  std::vector<std::string> chat_stops = {};  // what ends an answer beside stop tokens
  int64_t vocab = 0, context = 0;
  std::optional<uint32_t> seed = {};         // of requests that name none; else a random one
  const ServedPictures* pictures = nullptr;  // of a model that takes some
};

// Request of /v1/completions or /v1/chat/completions.
struct TextRequest {
  bool is_chat = false, streams = false, includes_usage = false, echoes = false;
  int n_logprobs = -1;           // as ServeText has it
  std::vector<ServeText> texts;  // n of each prompt, prompt by prompt
  int64_t n_prompt_tokens = 0;   // of each prompt once
};
TextRequest read_completion(const ServedModel& model, std::string_view body);
TextRequest read_chat(const ServedModel& model, std::string_view body);

struct EmbeddingRequest {
  std::vector<std::string> texts;
  bool is_base64 = false;
};
EmbeddingRequest read_embedding(const ServedModel& model, std::string_view body);

}  // namespace octet
