#include "infer/generate.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/printable.h"

namespace octet {
namespace {

constexpr size_t kContext = 16;  // tokens of the prompt that the first new one is read behind

// Bytes at the end that may be the beginning of a character.
size_t n_unfinished(std::string_view text) {
  constexpr size_t kLongest = 4;
  for (size_t n = 1; n <= std::min(kLongest - 1, text.size()); ++n) {
    const auto lead = static_cast<unsigned char>(text[text.size() - n]);
    if ((lead & 0xc0) == 0x80) continue;
    const size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return wanted > n ? n : 0;
  }
  return 0;
}

// Bytes at the end that are the beginning of `stop`, but not all of it.
size_t n_begun(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

WrittenText::WrittenText(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                         std::span<const std::string> stop_texts)
    : tokenizer_(tokenizer) {
  for (const std::string& stop : stop_texts) {
    if (!stop.empty()) stop_texts_.push_back(stop);
  }
  const auto tail = prompt.last(std::min(prompt.size(), kContext));
  tokens_.assign(tail.begin(), tail.end());
  before_ = tokenizer_.decode(tokens_);
}

std::string WrittenText::decoded() const {
  const std::string all = tokenizer_.decode(tokens_);
  if (all.starts_with(before_)) return all.substr(before_.size());
  // A character that the prompt began and the new tokens ended, where decoding mends it.
  const auto same = std::mismatch(all.begin(), all.end(), before_.begin(), before_.end()).first;
  return {same, all.end()};
}

bool WrittenText::add(int32_t token) {
  if (token < tokenizer_.vocab_size()) tokens_.push_back(token);
  text_ = decoded();
  size_t end = std::string::npos;
  for (const std::string& stop : stop_texts_) end = std::min(end, text_.find(stop));
  if (end != std::string::npos) {
    text_.resize(end);
    n_shown_ = end;
    return true;
  }
  size_t n_held = n_unfinished(text_);
  for (const std::string& stop : stop_texts_) n_held = std::max(n_held, n_begun(text_, stop));
  n_shown_ = std::max(n_shown_, text_.size() - n_held);
  return false;
}

namespace {

// A prompt that is being continued in an entry of the model.
struct Text {
  size_t index = 0;
  const Prompt* prompt = nullptr;
  std::vector<int32_t> tokens;
  int64_t n_held = 0;  // tokens that the entry holds
  WrittenText written;
  size_t n_told = 0;
  Stop stop = Stop::none;

  int64_t n_new() const { return std::ssize(tokens) - std::ssize(prompt->tokens); }
};

class Generator {
 public:
  Generator(TextModel& model, const Tokenizer& tokenizer, const GenerateOptions& options)
      : model_(model), tokenizer_(tokenizer), options_(options) {}

  // At most as many as the model has entries.
  std::vector<Completion> run(std::span<const size_t> indices, std::span<const Prompt> prompts) {
    texts_.clear();
    for (const size_t index : indices) {
      const Prompt& prompt = prompts[index];
      texts_.push_back({.index = index,
                        .prompt = &prompt,
                        .tokens = prompt.tokens,
                        .n_held = prompt.n_held,
                        .written = {tokenizer_, prompt.tokens, options_.stop_texts},
                        .n_told = 0,
                        .stop = options_.max_tokens == 0 ? Stop::length : Stop::none});
    }
    while (step()) {
    }
    std::vector<Completion> completions;
    for (Text& text : texts_) {
      const auto first = text.tokens.begin() + std::ssize(text.prompt->tokens);
      completions.push_back({{first, text.tokens.end()}, text.written.text(), text.stop});
    }
    return completions;
  }

 private:
  // A token for each text that goes on; false where none does.
  bool step() {
    std::vector<TextChunk> behind, last;
    for (size_t entry = 0; entry < texts_.size(); ++entry) {
      Text& text = texts_[entry];
      if (text.stop != Stop::none) continue;
      std::span<const int32_t> tokens = text.tokens;
      if (std::ssize(tokens) > model_.capacity()) {  // all positions change
        tokens = tokens.last(static_cast<size_t>(model_.capacity()));
        text.n_held = 0;
      }
      const auto id = static_cast<int64_t>(entry);
      const int64_t n = std::ssize(tokens);
      if (text.n_held < n - 1) {
        behind.push_back({id, text.n_held,
                          tokens.subspan(static_cast<size_t>(text.n_held),
                                         static_cast<size_t>(n - 1 - text.n_held))});
      }
      last.push_back({id, n - 1, tokens.last(1)});
      text.n_held = n;
    }
    if (last.empty()) return false;
    if (!behind.empty()) model_.fill(behind);
    if (model_.picks() && all_are_greedy(last)) {
      model_.pick(last, [&](const TextChunk& chunk, int32_t token, float logit) {
        Text& text = texts_[static_cast<size_t>(chunk.entry)];
        check_logit(logit, text.tokens.size());
        add_token(text, token);
      });
      return true;
    }
    model_.logits(last, [&](const TextChunk& chunk, int64_t, std::span<const float> logits) {
      Text& text = texts_[static_cast<size_t>(chunk.entry)];
      add_token(text, next_token(logits, text.tokens, text.n_new(), text.prompt->sampling));
    });
    return true;
  }

  bool all_are_greedy(std::span<const TextChunk> chunks) const {
    return std::ranges::all_of(chunks, [&](const TextChunk& chunk) {
      return is_greedy(texts_[static_cast<size_t>(chunk.entry)].prompt->sampling);
    });
  }

  void add_token(Text& text, int32_t id) {
    const auto& stop = options_.stop_tokens;
    if (std::ranges::find(stop, id) != stop.end()) {
      text.stop = Stop::token;
    } else {
      text.tokens.push_back(id);
      if (text.written.add(id)) {
        text.stop = Stop::text;
      } else if (text.n_new() >= options_.max_tokens) {
        text.stop = Stop::length;
      }
    }
    if (text.stop == Stop::token || text.stop == Stop::length) text.written.finish();
    tell(text);
  }

  void tell(Text& text) {
    if (!options_.on_text || text.written.n_certain() <= text.n_told) return;
    const std::string_view written = text.written.text();
    options_.on_text(text.index,
                     written.substr(text.n_told, text.written.n_certain() - text.n_told));
    text.n_told = text.written.n_certain();
  }

  TextModel& model_;
  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  std::vector<Text> texts_;
};

void check_prompts(const std::vector<Prompt>& prompts, int64_t vocab) {
  for (const Prompt& prompt : prompts) {
    if (prompt.tokens.empty()) {
      throw Error(ErrorCode::invalid_argument, "[generate] expected a prompt, got an empty one");
    }
    for (const int32_t id : prompt.tokens) {
      if (id >= 0 && id < vocab) continue;
      throw Error(ErrorCode::invalid_argument,
                  "[generate] expected tokens below the model's vocabulary of {}, got {}: the "
                  "tokenizer has more tokens than the model",
                  vocab, id);
    }
  }
}

}  // namespace

std::vector<Completion> generate(TextModel& model, const Tokenizer& tokenizer,
                                 const std::vector<Prompt>& prompts,
                                 const GenerateOptions& options) {
  check_prompts(prompts, model.vocab());
  CHECK(options.max_tokens >= 0);
  // Prompts of one length are read together with the least padding.
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return prompts[a].tokens.size() < prompts[b].tokens.size();
  });
  std::vector<Completion> completions(prompts.size());
  Generator generator(model, tokenizer, options);
  const auto n_entries = static_cast<size_t>(model.n_entries());
  for (size_t first = 0; first < order.size(); first += n_entries) {
    const auto batch = std::span(order).subspan(first, std::min(n_entries, order.size() - first));
    std::vector<Completion> done = generator.run(batch, prompts);
    for (size_t i = 0; i < batch.size(); ++i) completions[batch[i]] = std::move(done[i]);
  }
  return completions;
}

}  // namespace octet
