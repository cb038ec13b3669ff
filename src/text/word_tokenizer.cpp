#include "text/word_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace octet {
namespace {

constexpr size_t kWorthACache = 16 << 10;  // bytes of text

class WordTokenizer : public Tokenizer {
 public:
  explicit WordTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
    for (const AddedToken& token : parts_.added) {
      for (const bool parses : {false, true}) {
        if (token.special && !parses) continue;
        Finders& finders = finders_[parses];
        AddedTokenFinder& finder = token.normalized ? finders.normalized : finders.raw;
        AddedToken found = token;
        if (token.normalized) found.content = parts_.normalizer.apply(token.content);
        if (!found.content.empty()) finder.add(found);
      }
    }
    const bool has_all_bytes = std::ranges::count(parts_.byte_ids, -1) == 0;
    const bool has_affixes = !parts_.inner_prefix.empty() || !parts_.word_suffix.empty();
    const bool is_merged = !parts_.pieces && !parts_.unigram && !parts_.whole_words_only;
    // Parts of words that are looked up whole must not be looked up.
    cuts_words_ = is_merged && !parts_.whole_words_first && !has_affixes &&
                  parts_.symbols == Symbols::characters && (has_all_bytes || !parts_.fuse_unknown);
    for (int32_t id = 0; cuts_words_ && id < parts_.vocabulary.size(); ++id) {
      joined_.add(parts_.vocabulary.bytes(id));
    }
    is_silent_.resize(static_cast<size_t>(vocab_size()));
    for (const int32_t id : parts_.silent) is_silent_[static_cast<size_t>(id)] = true;
  }

  int64_t vocab_size() const override { return parts_.surfaces.size(); }
  std::optional<int32_t> bos() const override { return parts_.bos; }
  std::optional<int32_t> eos() const override { return parts_.eos; }
  std::vector<int32_t> prefix() const override { return parts_.prefix; }
  std::vector<int32_t> suffix() const override { return parts_.suffix; }
  TextTemplate text_template() const override {
    return parts_.around.single.empty() ? Tokenizer::text_template() : parts_.around;
  }
  std::optional<int32_t> unknown() const override {
    return parts_.unknown < 0 ? std::nullopt : std::optional(parts_.unknown);
  }
  std::vector<int32_t> special_ids() const override {
    std::vector<int32_t> ids;
    for (const AddedToken& token : parts_.added) {
      if (token.special) ids.push_back(token.id);
    }
    return ids;
  }
  std::optional<int32_t> special_id(std::string_view text) const override {
    for (const AddedToken& token : parts_.added) {
      if (token.content == text) return token.id;
    }
    return std::nullopt;
  }

  void encode(std::string_view text, const EncodeTextOptions& options,
              std::vector<int32_t>& ids) const override {
    std::unique_ptr<WordCache> own;
    if (options.words == nullptr && text.size() >= kWorthACache) {
      own = std::make_unique<WordCache>();
    }
    const SpecialText special =
        options.special == SpecialText::as_usual ? parts_.usual : options.special;
    Run run{
        .ids = ids, .words = own ? own.get() : options.words, .budget = match_budget(text.size())};
    try {
      encode_text(text, finders_[special == SpecialText::parse], run);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      throw Error(error.code(), "[tokenizer] {}: {}", parts_.name, error.what());
    }
  }

  std::vector<TokenSpan> encode_spans(std::string_view text) const override {
    std::vector<TokenSpan> spans;
    const Finders& finders = finders_[parts_.usual == SpecialText::parse];
    MatchBudget budget = match_budget(text.size());
    const auto place = [&](std::string_view part) { return part.data() - text.data(); };
    const auto visit = [&](const Segment& segment) {
      const int64_t begin = place(segment.text);
      if (segment.id >= 0) {
        spans.push_back({segment.id, begin, begin + std::ssize(segment.text)});
      } else {
        add_spans(segment.text, {begin, begin == 0}, finders, budget, spans);
      }
    };
    finders.raw.for_each_segment(text, visit);
    return spans;
  }

  std::string token_bytes(int32_t id) const override {
    check_id(id);
    return is_silent_[static_cast<size_t>(id)] ? "" : std::string(parts_.surfaces.bytes(id));
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) {
      check_id(ids[i]);
      const bool is_dropped =
          parts_.usual == SpecialText::plain && is_silent_[static_cast<size_t>(ids[i])];
      if (is_dropped) continue;
      const bool is_first = i == 0 && parts_.first_surfaces.size() > 0;
      const bool is_last = i + 1 == ids.size() && parts_.last_surfaces.size() > 0;
      const Vocabulary& others = is_last ? parts_.last_surfaces : parts_.surfaces;
      text += (is_first ? parts_.first_surfaces : others).bytes(ids[i]);
    }
    if (parts_.decode_strips_space && text.starts_with(' ')) text.erase(0, 1);
    if (parts_.decode_strips_last_space && text.ends_with(' ')) text.pop_back();
    return text;
  }

 private:
  struct Finders {
    AddedTokenFinder raw, normalized;
  };
  struct Run {
    std::vector<int32_t>& ids;
    WordCache* words = nullptr;
    MatchBudget budget = {};  // of all of the text
    std::vector<int32_t> word = {};
    MergeMemory memory = {};
  };

  void check_id(int32_t id) const {
    if (id >= 0 && id < vocab_size()) return;
    throw Error(ErrorCode::bad_data, "[tokenizer] {}: expected ids from 0 to {}, got {}",
                parts_.name, vocab_size() - 1, id);
  }

  void encode_text(std::string_view text, const Finders& finders, Run& run) const {
    const bool is_first = parts_.words.marks_first();  // else it makes no difference
    if (finders.raw.empty()) return encode_segment(text, finders, is_first, run);
    finders.raw.for_each_segment(text, [&](const Segment& segment) {
      if (segment.id >= 0) {
        run.ids.push_back(segment.id);
      } else {
        encode_segment(segment.text, finders, is_first && segment.text.data() == text.data(), run);
      }
    });
  }

  void encode_segment(std::string_view text, const Finders& finders, bool is_first,
                      Run& run) const {
    std::string normalized;
    if (!parts_.normalizer.changes_nothing()) {
      normalized = parts_.normalizer.apply(text, run.budget, is_first);
      text = normalized;
    }
    if (finders.normalized.empty()) return encode_words(text, is_first, run);
    finders.normalized.for_each_segment(text, [&](const Segment& segment) {
      if (segment.id >= 0) {
        run.ids.push_back(segment.id);
      } else {
        encode_words(segment.text, is_first && segment.text.data() == text.data(), run);
      }
    });
  }

  void encode_words(std::string_view text, bool is_first, Run& run) const {
    if (parts_.words.empty()) {
      encode_parts(text, run);
    } else {
      parts_.words.split(text, is_first, run.budget,
                         [&](std::string_view word) { encode_parts(word, run); });
    }
  }

  void encode_parts(std::string_view word, Run& run) const {
    if (!cuts_words_) return encode_word(word, run);
    for (size_t at = 0; at < word.size();) {
      const size_t end = joined_.end_of_part(word, at);
      encode_word(word.substr(at, end - at), run);
      at = end;
    }
  }

  void encode_word(std::string_view word, Run& run) const {
    if (word.empty()) return;  // no token, not the unknown one
    if (run.words != nullptr) {
      const std::span<const int32_t> known = run.words->find(word);
      if (!known.empty()) {
        run.ids.insert(run.ids.end(), known.begin(), known.end());
        return;
      }
    }
    run.word.clear();
    const int32_t whole = parts_.whole_words_first ? parts_.vocabulary.find(word) : -1;
    if (whole >= 0) {
      run.word.push_back(whole);
    } else if (parts_.whole_words_only) {
      append_unknown(word, run.word);
    } else if (parts_.pieces) {
      parts_.pieces->encode(word, run.word);
    } else if (parts_.unigram) {
      parts_.unigram->encode(word, run.word);
    } else {
      append_symbols(word, run.word);
      parts_.merges.merge(run.word, run.memory);
    }
    if (run.words != nullptr) run.words->put(word, run.word);
    run.ids.insert(run.ids.end(), run.word.begin(), run.word.end());
  }

  struct Part {
    int64_t begin = 0;  // in the whole text
    bool is_first = false;
  };
  struct Origin {
    int64_t begin, end;  // of the character that a byte comes from
  };

  [[noreturn]] static void no_places() {
    throw Error(ErrorCode::bad_data,
                "[tokenizer] expected a text of which each token is a part, got one that the "
                "normalizer or the pre-tokenizer changes as a whole");
  }

  // Text that the normalizer makes of each character by itself, which must be what it makes of all.
  std::string normalized(std::string_view text, int64_t begin, MatchBudget& budget,
                         std::vector<Origin>& origins) const {
    std::string joined;
    for (size_t at = 0; at < text.size();) {
      const size_t length = decode_utf8(text, at).length;
      const auto first = begin + static_cast<int64_t>(at);
      joined += parts_.normalizer.changes_nothing()
                    ? std::string(text.substr(at, length))
                    : parts_.normalizer.apply(text.substr(at, length));
      origins.resize(joined.size(), {first, first + static_cast<int64_t>(length)});
      at += length;
    }
    if (!parts_.normalizer.changes_nothing() && joined != parts_.normalizer.apply(text, budget))
      no_places();
    return joined;
  }

  void add_spans(std::string_view raw, const Part& part, const Finders& finders,
                 MatchBudget& budget, std::vector<TokenSpan>& spans) const {
    std::vector<Origin> origins;
    const std::string text = normalized(raw, part.begin, budget, origins);
    const auto add = [&](int32_t id, size_t begin, size_t end) {
      spans.push_back({id, origins[begin].begin, origins[end - 1].end});
    };
    const auto visit_word = [&](std::string_view word) {
      const char* first = text.data();
      if (word.data() < first || word.data() + word.size() > first + text.size()) no_places();
      add_word_spans(word, static_cast<size_t>(word.data() - first), add);
    };
    const auto visit = [&](const Segment& segment) {
      const auto begin = static_cast<size_t>(segment.text.data() - text.data());
      if (segment.id >= 0) return add(segment.id, begin, begin + segment.text.size());
      if (parts_.words.empty()) return visit_word(segment.text);
      const bool is_first = part.is_first && begin == 0 && origins[0].begin == part.begin;
      parts_.words.split(segment.text, is_first, budget, visit_word);
    };
    finders.normalized.for_each_segment(text, visit);
  }

  template <typename Add>
  void add_word_spans(std::string_view word, size_t begin, const Add& add) const {
    if (word.empty()) return;
    std::vector<int32_t> ids;
    Run run{.ids = ids};
    encode_parts(word, run);
    std::vector<size_t> ends;
    size_t end = 0;
    for (const int32_t id : ids) {
      const size_t size = parts_.vocabulary.bytes(id).size();
      const bool is_continued = parts_.pieces && !ends.empty();
      const size_t n_prefix = is_continued ? parts_.pieces->prefix().size() : 0;
      end += size < n_prefix ? 0 : size - n_prefix;
      ends.push_back(end);
    }
    const bool is_spelled = end == word.size() && (ids.size() > 1 || !parts_.pieces ||
                                                   parts_.vocabulary.bytes(ids[0]) == word);
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t from = is_spelled && i > 0 ? ends[i - 1] : 0;
      add(ids[i], begin + from, begin + (is_spelled ? ends[i] : word.size()));
    }
  }

  // A character that is spelled with what stands before or behind it in its word.
  std::string spelled(std::string_view character, bool is_first, bool is_last) const {
    std::string text = is_first ? "" : parts_.inner_prefix;
    text += character;
    return is_last ? text + parts_.word_suffix : text;
  }

  void append_affixed(std::string_view word, std::vector<int32_t>& ids) const {
    const bool has_bytes = parts_.symbols == Symbols::bytes;
    for (size_t at = 0; at < word.size();) {
      const size_t length = has_bytes ? 1 : decode_utf8(word, at).length;
      const std::string_view character = word.substr(at, length);
      const std::string token = spelled(character, at == 0, at + length == word.size());
      const int32_t id = has_bytes ? parts_.vocabulary.find(token) : -1;
      if (has_bytes) {
        id >= 0 ? ids.push_back(id) : append_unknown(character, ids);
      } else {
        append_character(character, token, ids);
      }
      at += length;
    }
  }

  void append_symbols(std::string_view word, std::vector<int32_t>& ids) const {
    if (!parts_.inner_prefix.empty() || !parts_.word_suffix.empty())
      return append_affixed(word, ids);
    if (parts_.symbols == Symbols::bytes) {
      for (const char& byte : word) append_byte(byte, ids);
      return;
    }
    for_each_character(word, [&](std::string_view character, int32_t) {
      append_character(character, character, ids);
    });
  }

  void append_byte(const char& byte, std::vector<int32_t>& ids) const {
    const auto index = static_cast<unsigned char>(byte);
    if (parts_.byte_ids[index] >= 0) return ids.push_back(parts_.byte_ids[index]);
    if (parts_.fallback_ids.empty() || parts_.fallback_ids[index].empty())
      return append_unknown({&byte, 1}, ids);
    ids.insert(ids.end(), parts_.fallback_ids[index].begin(), parts_.fallback_ids[index].end());
  }

  void append_character(std::string_view character, std::string_view as_token,
                        std::vector<int32_t>& ids) const {
    if (const int32_t id = parts_.vocabulary.find(as_token); id >= 0) {
      ids.push_back(id);
      return;
    }
    const size_t n_before = ids.size();
    for (const char byte : as_token) {
      const int32_t id = parts_.byte_ids[static_cast<unsigned char>(byte)];
      if (id < 0) {
        ids.resize(n_before);
        return append_unknown(character, ids);
      }
      ids.push_back(id);
    }
  }

  void append_unknown(std::string_view character, std::vector<int32_t>& ids) const {
    if (parts_.unknown < 0) {
      throw Error(
          ErrorCode::bad_data,
          "[tokenizer] {}: expected a token for every character, got none for byte 0x{:02X}",
          parts_.name, static_cast<unsigned char>(character.front()));
    }
    const bool is_fused = parts_.fuse_unknown && !ids.empty() && ids.back() == parts_.unknown;
    if (!is_fused) ids.push_back(parts_.unknown);
  }

  TokenizerParts parts_;
  Finders finders_[2];  // of plain text, of text whose special tokens are parsed
  JoinedCharacters joined_;
  bool cuts_words_ = false;
  std::vector<bool> is_silent_;
};

}  // namespace

std::unique_ptr<Tokenizer> word_tokenizer(TokenizerParts parts) {
  return std::make_unique<WordTokenizer>(std::move(parts));
}

inline JoinedCharacters::Next JoinedCharacters::next(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, at + 1};
  const Character character = decode_utf8(text, at);
  return {character.code == 0x2581 ? kMark : kOther, at + character.length};
}

void JoinedCharacters::add(std::string_view token) {
  for (size_t at = 0; at < token.size();) {
    const Next left = next(token, at);
    if (left.end < token.size()) joined_[left.type].set(next(token, left.end).type);
    at = left.end;
  }
}

size_t JoinedCharacters::end_of_part(std::string_view text, size_t at) const {
  Next left = next(text, at);
  while (left.end < text.size()) {
    const Next right = next(text, left.end);
    if (!joined_[left.type].test(right.type)) break;
    left = right;
  }
  return left.end;
}

}  // namespace octet
