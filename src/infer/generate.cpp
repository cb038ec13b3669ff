#include "infer/generate.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "infer/text_batch.h"

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

class CollectedText : public TextListener {
 public:
  CollectedText(size_t index, const GenerateOptions& options) : index_(index), options_(options) {}

  void on_token(int32_t token, std::span<const float>) override { done_.tokens.push_back(token); }
  void on_text(std::string_view text) override {
    if (options_.on_text) options_.on_text(index_, text);
  }
  void on_end(Stop stop, const std::string& text) override {
    if (stop == Stop::token) done_.tokens.pop_back();
    done_.text = text;
    done_.stop = stop;
  }
  Completion& done() { return done_; }

 private:
  size_t index_;
  const GenerateOptions& options_;
  Completion done_;
};

}  // namespace

std::vector<Completion> generate(TextModel& model, const Tokenizer& tokenizer,
                                 const std::vector<Prompt>& prompts,
                                 const GenerateOptions& options) {
  for (const Prompt& prompt : prompts) check_prompt(prompt.tokens, model.vocab());
  CHECK(options.max_tokens >= 0);
  // Prompts of one length are read together with the least padding.
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return prompts[a].tokens.size() < prompts[b].tokens.size();
  });
  std::vector<Completion> completions(prompts.size());
  TextBatch batch(model, tokenizer);
  for (size_t first = 0; first < order.size(); first += batch.n_entries()) {
    const size_t n = std::min(batch.n_entries(), order.size() - first);
    std::vector<CollectedText> texts;
    texts.reserve(n);
    for (size_t entry = 0; entry < n; ++entry) {
      const size_t index = order[first + entry];
      texts.emplace_back(index, options);
      batch.add(entry, {.prompt = prompts[index],
                        .max_tokens = options.max_tokens,
                        .stop_tokens = options.stop_tokens,
                        .stop_texts = options.stop_texts,
                        .listener = &texts.back()});
    }
    while (batch.step()) {
    }
    for (size_t entry = 0; entry < n; ++entry)
      completions[order[first + entry]] = std::move(texts[entry].done());
  }
  return completions;
}

}  // namespace octet
