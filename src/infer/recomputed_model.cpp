#include "infer/recomputed_model.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "data/rows.h"
#include "infer/batch_inputs.h"

namespace octet {
namespace {

Batch row_of(const Batch& batch, int64_t row) {
  Batch result{.batch = 1, .seq = batch.seq};
  for (const HostTensor& tensor : batch.tensors) {
    const int64_t n = tensor.spec.n_inner();
    std::visit(
        [&](const auto& values) {
          const auto first = values.begin() + row * n;
          result.set(tensor.spec, std::decay_t<decltype(values)>(first, first + n));
        },
        tensor.values);
  }
  return result;
}

}  // namespace

RecomputedModel::RecomputedModel(const TextModelOptions& options, int64_t vocab)
    : TextModel(options.n_entries, options.capacity, vocab, options.n_sources),
      texts_(static_cast<size_t>(options.n_entries)),
      sources_(texts_.size()) {}

int64_t RecomputedModel::padded_length(int64_t n_tokens, int64_t capacity) {
  constexpr int64_t kShortest = 16;
  const auto n = static_cast<uint64_t>(std::max(n_tokens, kShortest));
  return std::min(static_cast<int64_t>(std::bit_ceil(n)), capacity);
}

std::vector<int64_t> RecomputedModel::padded_lengths(int64_t least, int64_t capacity) {
  std::vector<int64_t> lengths = {padded_length(least, capacity)};
  while (lengths.back() < capacity) lengths.push_back(padded_length(lengths.back() + 1, capacity));
  return lengths;
}

void RecomputedModel::read_source(const Batch& rows) {
  CHECK(rows.batch == n_sources());
  for (int64_t entry = 0; entry < n_entries(); ++entry)
    sources_[static_cast<size_t>(entry)] = row_of(rows, entry * n_sources() / n_entries());
}

void RecomputedModel::fill(std::span<const TextChunk> chunks) {
  check_chunks(chunks);
  for (const TextChunk& chunk : chunks) {
    std::vector<int32_t>& text = texts_[static_cast<size_t>(chunk.entry)];
    CHECK(chunk.first <= std::ssize(text));
    text.resize(static_cast<size_t>(chunk.first));
    text.insert(text.end(), chunk.tokens.begin(), chunk.tokens.end());
  }
}

void RecomputedModel::logits(std::span<const TextChunk> chunks, const Visit& visit) {
  fill(chunks);
  for (const TextChunk& chunk : chunks) {
    const std::vector<int32_t>& text = texts_[static_cast<size_t>(chunk.entry)];
    Batch row = padded_row(text, padded_length(std::ssize(text), capacity()));
    add_source(sources_[static_cast<size_t>(chunk.entry)], row);
    const auto n = std::ssize(chunk.tokens);
    const std::vector<float> rows = logits_of(row, chunk.first, n);
    for (int64_t t = 0; t < n; ++t) {
      visit(
          chunk, t,
          std::span(rows).subspan(static_cast<size_t>(t * vocab()), static_cast<size_t>(vocab())));
    }
  }
}

void RecomputedModel::copy_prefix(int64_t n_tokens) {
  CHECK(n_tokens <= std::ssize(texts_.front()));
  texts_.front().resize(static_cast<size_t>(n_tokens));
  for (auto& text : texts_) text = texts_.front();
  for (Batch& source : sources_) source = sources_.front();
}

void RecomputedModel::take_over(std::span<const int64_t> from, int64_t n_tokens) {
  const std::vector<std::vector<int32_t>> held = texts_;
  for (size_t entry = 0; entry < texts_.size(); ++entry) {
    texts_[entry] = held[static_cast<size_t>(from[entry])];
    texts_[entry].resize(std::min(texts_[entry].size(), static_cast<size_t>(n_tokens)));
  }
}

}  // namespace octet
