#include "infer/text_states.h"

#include <algorithm>

#include "base/error.h"

namespace octet {

TextStates::TextStates(Inference& model, const BatchSize& size)
    : model_(model),
      size_(size),
      texts_(static_cast<size_t>(size.batch)),
      kept_(texts_.size(), 0) {}

TextStates::Again TextStates::go_back(int64_t entry, int64_t first) {
  std::vector<int32_t>& text = texts_[static_cast<size_t>(entry)];
  int64_t& kept = kept_[static_cast<size_t>(entry)];
  CHECK(first >= 0 && first <= std::ssize(text));
  if (first == std::ssize(text)) return {.first = first, .tokens = {}};
  const int64_t n_shared = std::ssize(shared_);
  const bool begins_shared =
      n_shared <= first && std::equal(shared_.begin(), shared_.end(), text.begin());
  int64_t from = 0;
  if (kept > 0 && kept <= first && (!begins_shared || kept >= n_shared)) {
    model_.restore_states(at(entry), entry);
    from = kept;
  } else if (begins_shared && n_shared > 0) {
    model_.restore_states(at(entry), size_.batch);
    from = n_shared;
  }
  if (kept > first) kept = 0;
  Again again{.first = from, .tokens = {text.begin() + from, text.begin() + first}};
  text.resize(static_cast<size_t>(from));
  return again;
}

void TextStates::read(int64_t entry, std::span<const int32_t> tokens) {
  std::vector<int32_t>& text = texts_[static_cast<size_t>(entry)];
  text.insert(text.end(), tokens.begin(), tokens.end());
}

void TextStates::keep(int64_t entry) {
  model_.keep_states(at(entry), entry);
  kept_[static_cast<size_t>(entry)] = n_held(entry);
}

void TextStates::share() {
  model_.keep_states(at(0), size_.batch);
  shared_ = texts_.front();
  std::ranges::fill(texts_, shared_);
  std::ranges::fill(kept_, 0);
}

void TextStates::take_over(std::span<const int64_t> from) {
  const std::vector<std::vector<int32_t>> held = texts_;
  for (size_t entry = 0; entry < texts_.size(); ++entry) {
    if (from[entry] == static_cast<int64_t>(entry)) continue;
    texts_[entry] = held[static_cast<size_t>(from[entry])];
    kept_[entry] = 0;
  }
}

}  // namespace octet
