#include "infer/text_batch.h"

#include <algorithm>

#include "base/error.h"

namespace octet {

void check_prompt(std::span<const int32_t> tokens, int64_t vocab) {
  if (tokens.empty()) {
    throw Error(ErrorCode::invalid_argument, "[generate] expected a prompt, got an empty one");
  }
  for (const int32_t id : tokens) {
    if (id >= 0 && id < vocab) continue;
    throw Error(ErrorCode::invalid_argument,
                "[generate] expected tokens below the model's vocabulary of {}, got {}: the "
                "tokenizer has more tokens than the model",
                vocab, id);
  }
}

TextBatch::TextBatch(TextModel& model, const Tokenizer& tokenizer, int64_t most_read)
    : model_(model),
      tokenizer_(tokenizer),
      most_read_(most_read),
      texts_(static_cast<size_t>(model.n_entries())) {}

void TextBatch::add(size_t entry, const BatchedText& text) {
  CHECK(is_free(entry) && text.listener != nullptr && text.max_tokens >= 0);
  check_prompt(text.prompt.tokens, model_.vocab());
  Text& to = texts_[entry];
  to = {.listener = text.listener,
        .tokens = text.prompt.tokens,
        .n_prompt = std::ssize(text.prompt.tokens),
        .n_held = text.prompt.n_held,
        .max_tokens = text.max_tokens,
        .sampling = text.prompt.sampling,
        .stop_tokens = text.stop_tokens,
        .wants_logits = text.wants_logits,
        .reads_prompt = text.reads_prompt};
  to.written.emplace_back(tokenizer_, text.prompt.tokens, text.stop_texts);
}

// Work of this step on one text.
void TextBatch::plan(size_t entry, Chunks& chunks) {
  Text& text = texts_[entry];
  std::span<const int32_t> tokens = text.tokens;
  int64_t most = most_read_;
  if (std::ssize(tokens) > model_.capacity()) {  // all positions change
    tokens = tokens.last(static_cast<size_t>(model_.capacity()));
    text.n_held = 0;
    most = kAll;
  }
  const auto id = static_cast<int64_t>(entry);
  const int64_t n = std::ssize(tokens), n_behind = n - 1 - text.n_held;
  const bool is_prompt = text.n_new() == 0;
  const bool writes_none = is_prompt && text.max_tokens == 0;
  if (n_behind > 0 && (!writes_none || text.reads_prompt)) {
    const int64_t n_read = std::min(n_behind, most);
    const auto first = static_cast<size_t>(text.n_held);
    std::vector<TextChunk>& to = is_prompt && text.reads_prompt ? chunks.read : chunks.fill;
    to.push_back({id, text.n_held, tokens.subspan(first, static_cast<size_t>(n_read))});
    text.n_held += n_read;
    if (n_read < n_behind) return;
  }
  if (writes_none) return;
  chunks.last.push_back({id, n - 1, tokens.last(1)});
  text.n_held = n;
}

void TextBatch::read_prompts(const std::vector<TextChunk>& chunks) {
  if (chunks.empty()) return;
  model_.logits(chunks, [&](const TextChunk& chunk, int64_t i, std::span<const float> logits) {
    text_of(chunk).listener->on_prompt(chunk.first + i, logits);
  });
}

bool TextBatch::can_pick(const std::vector<TextChunk>& chunks) const {
  return model_.picks() && std::ranges::all_of(chunks, [&](const TextChunk& chunk) {
           const Text& text = texts_[static_cast<size_t>(chunk.entry)];
           return is_greedy(text.sampling) && !text.wants_logits;
         });
}

bool TextBatch::step() {
  Chunks chunks;
  std::vector<size_t> done;  // that write nothing, and have been read
  bool has_texts = false;
  for (size_t entry = 0; entry < texts_.size(); ++entry) {
    if (is_free(entry)) continue;
    has_texts = true;
    plan(entry, chunks);
    const Text& text = texts_[entry];
    const bool is_read = !text.reads_prompt || text.n_held >= text.n_prompt - 1;
    if (text.max_tokens == 0 && is_read) done.push_back(entry);
  }
  if (!chunks.fill.empty()) model_.fill(chunks.fill);
  read_prompts(chunks.read);
  for (const size_t entry : done) end(texts_[entry], Stop::length);
  if (chunks.last.empty()) return has_texts;
  if (can_pick(chunks.last)) {
    model_.pick(chunks.last, [&](const TextChunk& chunk, int32_t token, float logit) {
      check_logit(logit, text_of(chunk).tokens.size());
      add_token(text_of(chunk), token, {});
    });
    return true;
  }
  model_.logits(chunks.last, [&](const TextChunk& chunk, int64_t, std::span<const float> logits) {
    Text& text = text_of(chunk);
    add_token(text, next_token(logits, text.tokens, text.n_new(), text.sampling), logits);
  });
  return true;
}

void TextBatch::add_token(Text& text, int32_t token, std::span<const float> logits) {
  text.listener->on_token(token, logits);
  if (std::ranges::find(text.stop_tokens, token) != text.stop_tokens.end())
    return end(text, Stop::token);
  text.tokens.push_back(token);
  WrittenText& written = text.written.front();
  if (written.add(token)) return end(text, Stop::text);
  if (text.n_new() >= text.max_tokens) return end(text, Stop::length);
  if (written.n_certain() <= text.n_told) return;
  const std::string_view all = written.text();
  text.listener->on_text(all.substr(text.n_told, written.n_certain() - text.n_told));
  text.n_told = written.n_certain();
}

void TextBatch::end(Text& text, Stop stop) {
  WrittenText& written = text.written.front();
  if (stop != Stop::text) written.finish();
  const std::string_view all = written.text();
  if (written.n_certain() > text.n_told) text.listener->on_text(all.substr(text.n_told));
  text.listener->on_end(stop, written.text());
  text = {};
}

}  // namespace octet
