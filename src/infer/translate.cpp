#include "infer/translate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/integer.h"
#include "data/inputs.h"
#include "infer/text_batch.h"
#include "text/translation_text.h"

namespace octet {
namespace {

// Some sources at a time, as many as the model has.
class SourceGroup {
 public:
  SourceGroup(TextModel& model, const TranslateOptions& options)
      : model_(model),
        options_(options),
        n_beams_(options.beams.n_beams),
        logits_(static_cast<size_t>(n_beams_ * model.vocab())) {}

  std::vector<Translation> write(size_t n) {
    std::vector<Translation> done(n);
    if (n_beams_ > 1) {
      search(done);
    } else {
      follow(done);
    }
    return done;
  }

 private:
  void search(std::vector<Translation>& done) {
    std::vector<BeamSearch> searches(done.size(), BeamSearch(options_.beams, options_.rules));
    std::vector<int64_t> from(static_cast<size_t>(model_.n_entries()));
    for (int64_t n_tokens = 0;; ++n_tokens) {
      std::vector<int32_t> tokens;
      std::vector<int64_t> entries;
      for (size_t i = 0; i < searches.size(); ++i) {
        if (searches[i].is_done()) continue;
        for (int64_t beam = 0; beam < n_beams_; ++beam) {
          tokens.push_back(searches[i].last_token(beam).value_or(options_.start));
          entries.push_back(static_cast<int64_t>(i) * n_beams_ + beam);
        }
      }
      if (entries.empty()) break;
      std::iota(from.begin(), from.end(), int64_t{0});
      read(entries, tokens, n_tokens, [&](int64_t entry, std::span<const float> logits) {
        const int64_t beam = entry % n_beams_, first = entry - beam;
        std::ranges::copy(logits, logits_.begin() + beam * model_.vocab());
        if (beam + 1 < n_beams_) return;
        BeamSearch& one = searches[static_cast<size_t>(first / n_beams_)];
        one.step(logits_);
        for (int64_t i = 0; i < n_beams_; ++i)
          from[static_cast<size_t>(first + i)] = first + one.parents()[static_cast<size_t>(i)];
      });
      model_.take_over(from, n_tokens + 1);
    }
    for (size_t i = 0; i < done.size(); ++i) {
      const Hypothesis& best = searches[i].best();
      done[i] = {.tokens = best.tokens, .stop = Stop::length, .score = best.score};
      drop_end(done[i]);
    }
  }

  // One token after the other.
  void follow(std::vector<Translation>& done) {
    std::vector<std::vector<int32_t>> texts(done.size(), {options_.start});
    std::vector<bool> is_done(done.size());
    for (int64_t n_tokens = 0; n_tokens < options_.rules.max_tokens; ++n_tokens) {
      std::vector<int32_t> tokens;
      std::vector<int64_t> entries;
      for (size_t i = 0; i < texts.size(); ++i) {
        if (is_done[i]) continue;
        tokens.push_back(texts[i].back());
        entries.push_back(static_cast<int64_t>(i));
      }
      if (entries.empty()) break;
      read(entries, tokens, n_tokens, [&](int64_t entry, std::span<const float> logits) {
        std::vector<int32_t>& text = texts[static_cast<size_t>(entry)];
        for (const float x : logits) check_logit(x, text.size());
        text.push_back(next_token(logits_by(options_.rules, logits, n_tokens), text, n_tokens,
                                  options_.sampling));
        if (std::ranges::count(options_.rules.ends, text.back()) > 0)
          is_done[static_cast<size_t>(entry)] = true;
      });
    }
    for (size_t i = 0; i < done.size(); ++i) {
      done[i].tokens.assign(texts[i].begin() + 1, texts[i].end());
      drop_end(done[i]);
    }
  }

  void drop_end(Translation& done) const {
    const bool has_end =
        !done.tokens.empty() && std::ranges::count(options_.rules.ends, done.tokens.back()) > 0;
    if (!has_end) return;
    done.tokens.pop_back();
    done.stop = Stop::token;
  }

  // Token `position` of each of these entries, and the logits behind it, in their order.
  template <typename Visit>
  void read(const std::vector<int64_t>& entries, const std::vector<int32_t>& tokens,
            int64_t position, const Visit& visit) {
    std::vector<TextChunk> chunks;
    for (size_t i = 0; i < entries.size(); ++i)
      chunks.push_back(
          {.entry = entries[i], .first = position, .tokens = std::span(tokens).subspan(i, 1)});
    model_.logits(chunks, [&](const TextChunk& chunk, int64_t, std::span<const float> logits) {
      visit(chunk.entry, logits);
    });
  }

  TextModel& model_;
  const TranslateOptions& options_;
  int64_t n_beams_;
  std::vector<float> logits_;  // of one source's beams
};

// The rows of sources; what is left of a group repeats its last.
Batch source_batch(const TextModel& model, const ModelSpec& spec,
                   std::span<const std::vector<int32_t>* const> sources) {
  Batch batch{.batch = model.n_sources(), .seq = 1};
  const std::vector<InputSpec> inputs = model_def(spec.kind).inputs(spec, {});
  for (const InputSpec& input : inputs) {
    if (input.per == Per::row) batch.add(input);
  }
  std::vector<int32_t>& ids = batch.ints("source");
  std::vector<int32_t>& lengths = batch.ints("source_length");
  for (size_t row = 0; row < lengths.size(); ++row) {
    const std::vector<int32_t>& source = *sources[std::min(row, sources.size() - 1)];
    std::ranges::copy(source, ids.begin() + static_cast<int64_t>(row) * spec.source_seq);
    lengths[row] = static_cast<int32_t>(source.size());
  }
  return batch;
}

}  // namespace

std::vector<Translation> translate(TextModel& model, const ModelSpec& spec,
                                   const std::vector<std::vector<int32_t>>& sources,
                                   const TranslateOptions& options) {
  CHECK(model.n_entries() == model.n_sources() * options.beams.n_beams);
  CHECK(model.capacity() >= options.rules.max_tokens);
  for (const std::vector<int32_t>& source : sources) {
    check_prompt(source, model.vocab());
    if (std::ssize(source) <= spec.source_seq) continue;
    throw Error(ErrorCode::invalid_argument,
                "[generate] expected sources of at most {} tokens, got one of {}", spec.source_seq,
                source.size());
  }
  // Sources of one length are done together: their texts end at about the same time.
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return sources[a].size() < sources[b].size(); });
  std::vector<Translation> all(sources.size());
  SourceGroup group(model, options);
  const auto most = static_cast<size_t>(model.n_sources());
  for (size_t first = 0; first < order.size(); first += most) {
    const size_t n = std::min(most, order.size() - first);
    std::vector<const std::vector<int32_t>*> rows;
    for (size_t i = 0; i < n; ++i) rows.push_back(&sources[order[first + i]]);
    model.read_source(source_batch(model, spec, rows));
    std::vector<Translation> done = group.write(n);
    for (size_t i = 0; i < n; ++i) all[order[first + i]] = std::move(done[i]);
  }
  return all;
}

namespace {

std::string without_spaces(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kSteps[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kSteps) {
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

std::string text_of(const Tokenizer& tokenizer, const Translation& translation,
                    const TranslateOptions& options) {
  std::vector<int32_t> known = translation.tokens;
  const std::vector<int32_t> special = tokenizer.special_ids();
  std::erase_if(known, [&](int32_t id) {
    return id >= tokenizer.vocab_size() || std::ranges::count(special, id) > 0;
  });
  std::string text = tokenizer.decode(known);
  return options.cleans_spaces ? without_spaces(std::move(text)) : text;
}

std::vector<std::vector<int32_t>> encode_sources(const Tokenizer& tokenizer,
                                                 const std::vector<std::string>& texts,
                                                 const std::string& prefix,
                                                 const std::string& place, ModelSpec& spec) {
  constexpr int64_t kStep = 8;
  const bool is_bounded = model_def(spec.kind).positions != Positions::relative;
  std::vector<std::vector<int32_t>> sources;
  int64_t longest = 1;
  for (size_t i = 0; i < texts.size(); ++i) {
    sources.push_back(source_tokens(tokenizer, prefix + texts[i]).ids);
    const int64_t n = std::ssize(sources.back());
    longest = std::max(longest, n);
    if (!is_bounded || n <= spec.max_positions) continue;
    throw Error(ErrorCode::invalid_argument, "[generate] {}:{}: expected at most {} tokens, got {}",
                place, i + 1, spec.max_positions, n);
  }
  spec.source_seq = ceil_div(longest, kStep) * kStep;
  return sources;
}

int64_t max_new_tokens(std::optional<int64_t> asked, const DecodingDefaults& defaults,
                       const ModelSpec& spec) {
  constexpr int64_t kUnlessTold = 200;
  const bool is_bounded = model_def(spec.kind).positions != Positions::relative;
  const int64_t most = is_bounded ? spec.max_positions : INT32_MAX;
  const int64_t n = asked                 ? *asked
                    : defaults.max_tokens ? *defaults.max_tokens
                                          : std::min(kUnlessTold, most);
  if (n >= 1 && n <= most) return n;
  throw Error(ErrorCode::invalid_argument, "[generate] expected 1 to {} new tokens at most, got {}",
              most, n);
}

TranslateOptions translate_options(const Files& files, const ModelSource& source,
                                   std::vector<int32_t> ends, const TranslationChoice& choice) {
  const DecodingDefaults defaults = decoding_defaults(files, source);
  TranslateOptions options{.rules = defaults.rules,
                           .beams = defaults.beams,
                           .sampling = choice.sampling,
                           .start = defaults.start,
                           .cleans_spaces = defaults.cleans_spaces};
  options.rules.max_tokens = max_new_tokens(choice.max_tokens, defaults, source.spec);
  options.rules.ends = std::move(ends);
  if (choice.n_beams > 0) options.beams.n_beams = choice.n_beams;
  options.beams.length_penalty = choice.length_penalty.value_or(options.beams.length_penalty);
  options.beams.early_stopping = choice.early_stopping.value_or(options.beams.early_stopping);
  check_sampling(options.sampling);
  return options;
}

}  // namespace octet
