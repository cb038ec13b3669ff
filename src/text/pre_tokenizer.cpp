#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/unicode.h"

namespace octet {
namespace {

// Puts matches and what lies between them together, as a behavior says.
class Ranges {
 public:
  Ranges(std::string_view text, SplitBehavior behavior, const PreTokenizer::Visit& visit)
      : text_(text), behavior_(behavior), visit_(visit) {}

  void add(size_t begin, size_t end, bool is_match) {
    if (begin == end) return;
    if (joins(is_match)) {
      pending_end_ = end;
    } else {
      flush();
      pending_begin_ = begin;
      pending_end_ = end;
    }
    // Text that a match was merged with takes no further match.
    const bool was_merged = behavior_ == SplitBehavior::merged_with_next && !is_match;
    pending_is_match_ = was_merged ? false : is_match;
  }

  // An empty match merges with nothing, but parts what lies around it.
  void add_empty(bool is_match) {
    if (behavior_ == SplitBehavior::contiguous && is_match != pending_is_match_) flush();
  }

  void flush() {
    const bool is_dropped = behavior_ == SplitBehavior::removed && pending_is_match_;
    if (pending_begin_ < pending_end_ && !is_dropped) {
      visit_(text_.substr(pending_begin_, pending_end_ - pending_begin_));
    }
    pending_begin_ = pending_end_;
  }

 private:
  bool joins(bool is_match) const {
    if (pending_begin_ == pending_end_) return false;
    switch (behavior_) {
      case SplitBehavior::removed:
      case SplitBehavior::isolated:
        return false;
      case SplitBehavior::contiguous:
        return is_match == pending_is_match_;
      case SplitBehavior::merged_with_previous:
        return is_match && !pending_is_match_;
      case SplitBehavior::merged_with_next:
        return !is_match && pending_is_match_;
    }
    return false;
  }

  std::string_view text_;
  SplitBehavior behavior_;
  const PreTokenizer::Visit& visit_;
  size_t pending_begin_ = 0, pending_end_ = 0;
  bool pending_is_match_ = false;
};

// Calls `visit` for each match.
void find_all(const SplitMatches& split, std::string_view text, MatchBudget& budget,
              const std::function<void(const RegexMatch&)>& visit) {
  if (split.regex) return split.regex->for_each(text, budget, visit);
  for (size_t at = text.find(split.literal); at != text.npos;) {
    const size_t end = at + split.literal.size();
    visit({at, end});
    at = text.find(split.literal, end);
  }
}

// The document of a part: whether it begins with this part of it, and what its matching may take.
struct Whole {
  bool is_first;
  MatchBudget& budget;
};

void cut(const PrefixSpace&, std::string_view text, const Whole&,
         const PreTokenizer::Visit& visit) {
  visit(text.starts_with(' ') ? text : std::string_view(" " + std::string(text)));
}

void cut(const SplitMatches& split, std::string_view text, const Whole& whole,
         const PreTokenizer::Visit& visit) {
  Ranges ranges(text, split.behavior, visit);
  size_t done = 0;
  // No expression matches bytes that are no UTF-8: they stay where what does not match is removed.
  const auto add_between = [&](size_t end) {
    const bool stays = split.behavior == SplitBehavior::removed &&
                       find_invalid_utf8(text.substr(done, end - done)) != text.npos;
    ranges.add(done, end, split.invert && !stays);
  };
  find_all(split, text, whole.budget, [&](const RegexMatch& match) {
    add_between(match.begin);
    if (match.begin == match.end) ranges.add_empty(!split.invert);
    ranges.add(match.begin, match.end, !split.invert);
    done = match.end;
  });
  add_between(text.size());
  ranges.flush();
}

void cut(const SplitCharacters& split, std::string_view text, const Whole&,
         const PreTokenizer::Visit& visit) {
  Ranges ranges(text, split.behavior, visit);
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const Character character = byte < 0x80 ? Character{byte, 1} : decode_utf8(text, at);
    if (split.matches(character.code)) {
      ranges.add(done, at, false);
      ranges.add(at, at + character.length, true);
      done = at + character.length;
    }
    at += character.length;
  }
  ranges.add(done, text.size(), false);
  ranges.flush();
}

void cut(const SplitLengths& split, std::string_view text, const Whole&,
         const PreTokenizer::Visit& visit) {
  while (!text.empty()) {
    size_t end = 0;
    for (int64_t n = 0; n < split.length && end < text.size(); ++n)
      end += decode_utf8(text, end).length;
    visit(text.substr(0, end));
    text.remove_prefix(end);
  }
}

void cut(const MarkSpaces& metaspace, std::string_view text, const Whole& whole,
         const PreTokenizer::Visit& visit) {
  std::string marked;
  for (const char c : text) {
    if (c == ' ') {
      marked += metaspace.mark;
    } else {
      marked += c;
    }
  }
  const bool prepends = metaspace.prepend == PrependScheme::always ||
                        (metaspace.prepend == PrependScheme::first && whole.is_first);
  if (prepends && !marked.starts_with(metaspace.mark)) marked.insert(0, metaspace.mark);
  if (!metaspace.split) return visit(marked);
  cut(SplitMatches{nullptr, metaspace.mark, SplitBehavior::merged_with_next}, marked, whole, visit);
}

}  // namespace

void PreTokenizer::add(PreTokenizerStep step) {
  steps_.push_back(std::move(step));
  const auto n_marks = std::count_if(steps_.begin(), steps_.end(), [](const auto& known) {
    return std::holds_alternative<MarkSpaces>(known);
  });
  if (steps_.size() <= limits_.max_steps && n_marks <= limits_.max_marks) return;
  throw Error(ErrorCode::invalid_argument,
              "expected at most {} pre-tokenizers, and {} of Metaspace, got more",
              limits_.max_steps, limits_.max_marks);
}

void PreTokenizer::split_from(size_t step, const Part& part, MatchBudget& budget,
                              const Visit& visit) const {
  if (part.text.empty()) return;
  if (step == steps_.size()) return visit(part.text);
  const char* begin = part.text.data();
  const bool is_copied = std::holds_alternative<MarkSpaces>(steps_[step]);  // from its beginning on
  bool is_begin = true;
  const auto go_on = [&](std::string_view word) {
    const bool is_first = is_copied ? std::exchange(is_begin, false) : word.data() == begin;
    split_from(step + 1, {word, part.is_first && is_first}, budget, visit);
  };
  const Whole whole{part.is_first, budget};
  std::visit([&](const auto& known) { cut(known, part.text, whole, go_on); }, steps_[step]);
}

}  // namespace octet
