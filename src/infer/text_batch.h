// Texts that a model writes side by side. One begins wherever an entry of the model is free,
// between two steps of the others, and each has settings and an end of its own.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infer/generate.h"
#include "infer/text_model.h"
#include "text/tokenizer.h"

namespace octet {

// Messages to a text's owner, during TextBatch::step(). Spans are valid during the call.
class TextListener {
 public:
  virtual ~TextListener() = default;
  // The logits behind token `token` of the prompt, in their order; of all but its last one. Only
  // with BatchedText::reads_prompt.
  virtual void on_prompt(int64_t /*token*/, std::span<const float> /*logits*/) {}
  // A new token, also one that ends the text, and the logits that it was chosen by. Without
  // BatchedText::wants_logits there may be none.
  virtual void on_token(int32_t /*token*/, std::span<const float> /*logits*/) {}
  // More of the text: whole characters, never a part of a stop text.
  virtual void on_text(std::string_view /*text*/) {}
  // The last call. `text`: all that the new tokens say.
  virtual void on_end(Stop stop, const std::string& text) = 0;
};

struct BatchedText {
  Prompt prompt;
  int64_t max_tokens = 100;
  std::span<const int32_t> stop_tokens = {};     // outlives the text
  std::span<const std::string> stop_texts = {};  // copied
  bool wants_logits = false, reads_prompt = false;
  TextListener* listener = nullptr;  // outlives the text
};

// Throws Error{invalid_argument} for an empty prompt and for a token outside the vocabulary.
void check_prompt(std::span<const int32_t> tokens, int64_t vocab);

class TextBatch {
 public:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  // `most_read`: tokens of a prompt in one step; a longer one takes several, in which the other
  // texts go on.
  TextBatch(TextModel& model, const Tokenizer& tokenizer, int64_t most_read = kAll);

  bool is_free(size_t entry) const { return texts_[entry].listener == nullptr; }
  size_t n_entries() const { return texts_.size(); }
  // Into a free entry. Throws as check_prompt(). A text of no new tokens ends once its prompt is
  // read, where it asks for that.
  void add(size_t entry, const BatchedText& text);
  // Its listener hears no more.
  void remove(size_t entry) { texts_[entry] = {}; }

  // A token for each text whose prompt is read; false where there is no text. Beyond the model's
  // capacity the oldest tokens are forgotten, and each token costs a pass over the whole text.
  // Throws as next_token(); no text can go on then.
  bool step();

 private:
  struct Text {
    TextListener* listener = nullptr;  // null: the entry is free
    std::vector<int32_t> tokens = {};
    int64_t n_prompt = 0, n_held = 0, max_tokens = 0;  // held: by the entry
    Sampling sampling = {};
    std::span<const int32_t> stop_tokens = {};
    bool wants_logits = false, reads_prompt = false;
    std::vector<WrittenText> written = {};  // one
    size_t n_told = 0;

    int64_t n_new() const { return std::ssize(tokens) - n_prompt; }
  };
  // Chunks of one step: of prompts, for the cache alone or with their logits, and last tokens.
  struct Chunks {
    std::vector<TextChunk> fill, read, last;
  };

  void plan(size_t entry, Chunks& chunks);
  void read_prompts(const std::vector<TextChunk>& chunks);
  void add_token(Text& text, int32_t token, std::span<const float> logits);
  void end(Text& text, Stop stop);
  bool can_pick(const std::vector<TextChunk>& chunks) const;
  Text& text_of(const TextChunk& chunk) { return texts_[static_cast<size_t>(chunk.entry)]; }

  TextModel& model_;
  const Tokenizer& tokenizer_;
  int64_t most_read_;
  std::vector<Text> texts_;  // by entry
};

}  // namespace octet
