#include "infer/score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "infer/log_probabilities.h"
#include "text/jinja/characters.h"

namespace octet {
namespace {

// Shorter ones are read again.
constexpr size_t kWorthSharing = 16;

std::vector<int32_t> begun(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids = tokenizer.prefix();
  // A text that begins with the beginning gets no second one.
  const std::string first = ids.empty() ? "" : tokenizer.decode(ids);
  if (!first.empty() && text.starts_with(first)) ids.clear();
  tokenizer.encode(text, {}, ids);
  return ids;
}

// Token that a text without a context is scored behind.
int32_t first_token(const Tokenizer& tokenizer) {
  const auto first = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
  if (first) return *first;
  throw Error(ErrorCode::invalid_argument,
              "[score] expected a context, got an empty one: the tokenizer has no token to "
              "begin with");
}

// Nats of the token, and whether it is the most probable.
LogLikelihood of_token(std::span<const float> logits, int32_t token) {
  const double nats = LogProbabilities(logits).of(token);
  if (std::isnan(nats)) {
    throw Error(ErrorCode::numerics, "[score] expected finite logits, got NaN");
  }
  const auto first = std::ranges::max_element(logits) - logits.begin();
  return {nats, first == token, 1};
}

// A context and the requests that have it.
struct Item {
  const std::vector<int32_t>* context = nullptr;
  std::vector<size_t> requests;
};

std::vector<Item> items_of(std::span<const ScoredTokens> requests) {
  std::map<std::vector<int32_t>, std::vector<size_t>> by_context;
  for (size_t i = 0; i < requests.size(); ++i) by_context[requests[i].context].push_back(i);
  std::vector<Item> items;
  items.reserve(by_context.size());
  for (const auto& [context, indices] : by_context) {
    items.push_back({&requests[indices.front()].context, indices});
  }
  std::ranges::stable_sort(
      items, [&](const Item& a, const Item& b) { return a.context->size() < b.context->size(); });
  return items;
}

class Scorer {
 public:
  Scorer(TextModel& model, std::span<const ScoredTokens> requests, const OnScored& on_done)
      : model_(model), requests_(requests), on_done_(on_done) {}

  void run() {
    const std::vector<Item> items = items_of(requests_);
    held_.assign(static_cast<size_t>(model_.n_entries()), {});
    share_prefix(items);
    for (size_t first = 0; first < items.size(); first += held_.size()) {
      try {
        run_batch(std::span(items).subspan(first, std::min(held_.size(), items.size() - first)));
      } catch (const Error& error) {
        throw ScoreError(items[first].requests.front(), error);
      }
    }
  }

 private:
  void share_prefix(std::span<const Item> items) {
    std::vector<const std::vector<int32_t>*> contexts;
    for (const Item& item : items) contexts.push_back(item.context);
    const size_t n = common_prefix(contexts);
    if (items.size() < 2 || n < kWorthSharing) return;
    const auto prefix = std::span(*contexts.front()).first(n);
    model_.fill(std::vector{TextChunk{.tokens = prefix}});
    model_.copy_prefix(static_cast<int64_t>(n));
    held_.assign(held_.size(), {prefix.begin(), prefix.end()});
  }

  void run_batch(std::span<const Item> items) {
    std::vector<TextChunk> chunks;
    size_t most = 0;
    for (size_t entry = 0; entry < items.size(); ++entry) {
      const std::vector<int32_t>& context = *items[entry].context;
      most = std::max(most, items[entry].requests.size());
      // Its last token is read with each continuation.
      const std::span<const int32_t> behind(context.data(), context.size() - 1);
      const std::vector<int32_t>& held = held_[entry];
      const auto same = std::mismatch(behind.begin(), behind.end(), held.begin(), held.end()).first;
      const auto n = static_cast<size_t>(same - behind.begin());
      if (n < behind.size()) {
        chunks.push_back({static_cast<int64_t>(entry), static_cast<int64_t>(n), behind.subspan(n)});
      }
      held_[entry].assign(behind.begin(), behind.end());
    }
    if (!chunks.empty()) model_.fill(chunks);
    for (size_t i = 0; i < most; ++i) run_continuations(items, i);
  }

  // The i-th of each item.
  void run_continuations(std::span<const Item> items, size_t i) {
    std::vector<TextChunk> chunks;
    std::vector<std::vector<int32_t>> rows(items.size());
    std::vector<LogLikelihood> results(items.size(), {0, true, 0});
    for (size_t entry = 0; entry < items.size(); ++entry) {
      if (i >= items[entry].requests.size()) continue;
      const ScoredTokens& request = requests_[items[entry].requests[i]];
      rows[entry] = {request.context.back()};
      rows[entry].insert(rows[entry].end(), request.continuation.begin(),
                         request.continuation.end() - 1);
      chunks.push_back({static_cast<int64_t>(entry), std::ssize(request.context) - 1, rows[entry]});
    }
    model_.logits(chunks, [&](const TextChunk& chunk, int64_t t, std::span<const float> logits) {
      const auto entry = static_cast<size_t>(chunk.entry);
      const ScoredTokens& request = requests_[items[entry].requests[i]];
      const auto token = of_token(logits, request.continuation[static_cast<size_t>(t)]);
      LogLikelihood& result = results[entry];
      result.sum += token.sum;
      result.is_greedy = result.is_greedy && token.is_greedy;
      ++result.n_tokens;
    });
    for (const TextChunk& chunk : chunks) {
      const auto entry = static_cast<size_t>(chunk.entry);
      on_done_(items[entry].requests[i], results[entry]);
    }
  }

  TextModel& model_;
  std::span<const ScoredTokens> requests_;
  const OnScored& on_done_;
  std::vector<std::vector<int32_t>> held_;  // of the contexts, by entry
};

}  // namespace

ScoredTokens scored_tokens(const Tokenizer& tokenizer, const ScoreRequest& request,
                           int64_t longest) {
  if (request.continuation.empty()) {
    throw Error(ErrorCode::invalid_argument, "[score] expected a continuation, got an empty one");
  }
  // White space before the continuation is its own.
  const size_t end = jinja::strip(request.context, Side::right).size();
  const std::string context = request.context.substr(0, end);
  const std::string continuation = request.context.substr(end) + request.continuation;
  ScoredTokens tokens;
  if (!request.context.empty()) {
    const std::vector<int32_t> whole = begun(tokenizer, context + continuation);
    tokens.context = begun(tokenizer, context);
    const size_t cut = std::min(tokens.context.size(), whole.size());
    tokens.continuation.assign(whole.begin() + static_cast<int64_t>(cut), whole.end());
  }
  // Also where one token spans the end of the context and all of the continuation.
  if (tokens.continuation.empty()) tokens.continuation = tokenizer.encode(continuation);
  if (tokens.context.empty()) tokens.context = {first_token(tokenizer)};
  if (tokens.continuation.size() > 1 && tokens.continuation.front() == tokens.context.front() &&
      request.context.empty()) {
    tokens.continuation.erase(tokens.continuation.begin());  // it begins as a text does
  }
  if (tokens.continuation.empty()) {
    throw Error(ErrorCode::bad_data, "[score] expected tokens of a continuation, got none");
  }
  // The left of what is too long goes: contexts first.
  const int64_t n = std::ssize(tokens.context) + std::ssize(tokens.continuation);
  const int64_t n_cut = std::max<int64_t>(0, n - (longest + 1));
  const int64_t of_context = std::min(n_cut, std::ssize(tokens.context) - 1);
  tokens.context.erase(tokens.context.begin(), tokens.context.begin() + of_context);
  const int64_t rest = n_cut - of_context;
  if (rest > 0) {  // the first that are left are given
    tokens.context = {tokens.continuation[static_cast<size_t>(rest) - 1]};
    tokens.continuation.erase(tokens.continuation.begin(), tokens.continuation.begin() + rest);
  }
  return tokens;
}

size_t common_prefix(std::span<const std::vector<int32_t>* const> texts) {
  if (texts.empty()) return 0;
  size_t n = texts.front()->size();
  for (const auto* text : texts) {
    const auto end = texts.front()->begin() + static_cast<int64_t>(n);
    const auto same = std::mismatch(texts.front()->begin(), end, text->begin(), text->end()).first;
    n = static_cast<size_t>(same - texts.front()->begin());
  }
  return n;
}

void score(TextModel& model, std::span<const ScoredTokens> requests, const OnScored& on_done) {
  Scorer(model, requests, on_done).run();
}

}  // namespace octet
