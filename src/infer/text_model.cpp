#include "infer/text_model.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "data/rows.h"
#include "infer/batch_inputs.h"
#include "infer/picture_prompt.h"
#include "infer/recomputed_model.h"
#include "infer/text_states.h"
#include "nn/shape.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

int64_t longest(std::span<const TextChunk> chunks) {
  size_t most = 0;
  for (const TextChunk& chunk : chunks) most = std::max(most, chunk.tokens.size());
  return static_cast<int64_t>(most);
}

class CachedModel : public TextModel {
 public:
  CachedModel(const ModelSource& source, const TextModelOptions& options,
              const TextMachine& machine)
      : TextModel(options.n_entries, options.capacity, source.spec.vocab, options.n_sources),
        picks_(options.picks),
        runs_one_alone_(runs_one_alone(source.spec, options)),
        functions_(cached_functions(source.spec, options, machine.catalogue)),
        model_(source, functions_, machine),
        last_(static_cast<size_t>(options.n_entries)) {
    if (has_state(filled(source.spec)))
      states_.emplace(model_, BatchSize{.batch = n_entries(), .cache = capacity()});
    if (model_def(source.spec.kind).sees_pictures) pictures_.resize(last_.size());
  }

  void read_pictures(int64_t entry, EntryPictures pictures) override {
    if (pictures_.empty()) return TextModel::read_pictures(entry, std::move(pictures));
    pictures_[static_cast<size_t>(entry)] = std::move(pictures);
  }

  void read_source(const Batch& rows) override {
    CHECK(rows.batch == n_sources());
    source_ = of_entries(rows);
    BoundPlan& plan =
        model_.function(function::encode, {.batch = n_sources(), .seq = 1, .cache = capacity()});
    upload(plan, rows);
    plan.run();
    if (n_sources() < n_entries()) model_.copy_sources(n_sources(), n_entries());
  }

  void fill(std::span<const TextChunk> chunks) override {
    check_chunks(chunks);
    go_back(chunks);
    read_on(chunks);
  }

  void logits(std::span<const TextChunk> chunks, const Visit& visit) override {
    check_chunks(chunks);
    go_back(chunks);
    const int64_t n = longest(chunks);
    for (int64_t from = 0; from < n;) {
      const int64_t size = chunk_size(function::decode, n - from, is_alone(chunks));
      const BoundPlan& plan = run(function::decode, size, chunks, from);
      for (const TextChunk& chunk : chunks) {
        const auto end = std::min(std::ssize(chunk.tokens), from + size);
        if (end <= from) continue;
        const int64_t row = is_alone(chunks) ? 0 : chunk.entry * size;
        const auto rows = model_.read_logits(plan, row, end - from);
        for (int64_t t = from; t < end; ++t) {
          const auto at = static_cast<size_t>((t - from) * vocab());
          visit(chunk, t, std::span(rows).subspan(at, static_cast<size_t>(vocab())));
        }
      }
      from += size;
    }
  }

  bool picks() const override { return picks_; }
  void pick(std::span<const TextChunk> chunks, const VisitPick& visit) override {
    check_chunks(chunks);
    go_back(chunks);
    CHECK(picks_ && longest(chunks) == 1);
    const BoundPlan& plan = run(function::pick, 1, chunks, 0);
    const auto n = static_cast<size_t>(n_entries());
    std::vector<int32_t> tokens(n);
    std::vector<float> top(n);
    model_.read(plan, "token", std::as_writable_bytes(std::span(tokens)));
    model_.read(plan, "top", std::as_writable_bytes(std::span(top)));
    for (const TextChunk& chunk : chunks) {
      const auto entry = static_cast<size_t>(chunk.entry);
      visit(chunk, tokens[entry], top[entry]);
    }
  }

  void copy_prefix(int64_t n_tokens) override {
    CHECK(n_tokens >= 1 && n_tokens <= capacity());
    if (states_) CHECK(n_tokens == states_->n_held(0));
    model_.copy_cache({.batch = n_entries(), .cache = capacity()}, n_tokens);
    for (Last& last : last_) last = last_.front();
    if (states_) states_->share();
    alone_ = {};
  }

  void take_over(std::span<const int64_t> from, int64_t n_tokens) override {
    CHECK(std::ssize(from) == n_entries());
    model_.reorder_cache({.batch = n_entries(), .cache = capacity()}, from, n_tokens);
    const std::vector<Last> held = last_;
    for (size_t entry = 0; entry < last_.size(); ++entry)
      last_[entry] = held[static_cast<size_t>(from[entry])];
    if (states_) states_->take_over(from);
    alone_ = {};
  }

  bool has_cache() const override { return true; }
  int64_t planned_bytes() const override { return model_.planned_bytes(); }

 private:
  // The smallest size that takes `n` tokens in at most three calls, or the largest.
  int64_t chunk_size(std::string_view name, int64_t n, bool is_alone) const {
    int64_t size = 0;
    for (const FunctionKey& key : functions_) {
      if (key.name != name || key.size.batch != (is_alone ? 1 : n_entries())) continue;
      size = key.size.seq;
      if (n <= (name == function::decode ? 1 : 3) * size) break;
    }
    return size;
  }

  void read_on(std::span<const TextChunk> chunks) {
    const int64_t n = longest(chunks);
    for (int64_t from = 0; from < n;) {
      const int64_t size = chunk_size(function::fill, n - from, is_alone(chunks));
      run(function::fill, size, chunks, from);
      from += size;
    }
    if (!states_) return;
    for (const TextChunk& chunk : chunks) states_->keep(chunk.entry);
  }

  // States stand where the chunks begin.
  void go_back(std::span<const TextChunk> chunks) {
    if (!states_) return;
    std::vector<TextStates::Again> again;
    std::vector<TextChunk> missing;
    again.reserve(chunks.size());
    for (const TextChunk& chunk : chunks) {
      if (chunk.first == states_->n_held(chunk.entry)) continue;
      const TextStates::Again& one = again.emplace_back(states_->go_back(chunk.entry, chunk.first));
      if (chunk.entry == alone_.entry) alone_ = {};
      if (!one.tokens.empty()) missing.push_back({chunk.entry, one.first, one.tokens});
    }
    if (!missing.empty()) read_on(missing);
  }

  // Behind a row's tokens, where layers have states, there is no position.
  std::vector<int32_t> positions(int64_t rows, int64_t size, const PositionRule& rule) const {
    std::vector<int32_t> all = positions_of(rows, size, rule);
    for (int64_t row = 0; states_ && row < rows; ++row)
      std::fill(all.begin() + row * size + rule.held[static_cast<size_t>(row)],
                all.begin() + (row + 1) * size, -1);
    return all;
  }

  bool is_alone(std::span<const TextChunk> chunks) const {
    return runs_one_alone_ && chunks.size() == 1;
  }

  // The same as run(), of one entry: over the cache of one text, which is filled from the entry's
  // where it lacks rows, and whose new rows are the entry's, too.
  const BoundPlan& run_alone(std::string_view name, int64_t size, const TextChunk& chunk,
                             int64_t from) {
    const int64_t first = chunk.first + from;
    const int64_t n = std::min(std::ssize(chunk.tokens) - from, size);
    const Inference::CacheEntry of_all = {{.batch = n_entries(), .cache = capacity()}, chunk.entry};
    const Inference::CacheEntry of_one = {{.batch = 1, .cache = capacity()}, 0};
    if (alone_.entry != chunk.entry) alone_ = {.entry = chunk.entry, .n_rows = 0};
    if (alone_.n_rows < first)
      model_.copy_rows(of_all, of_one, alone_.n_rows, first - alone_.n_rows);
    Batch batch = empty_batch(1, size);
    const auto tokens = chunk.tokens.subspan(static_cast<size_t>(from), static_cast<size_t>(n));
    const auto row = batch.ints("tokens").begin();
    std::fill(std::ranges::copy(tokens, row).out, row + size, tokens.back());
    batch.set(positions_input(), positions(1, size, {.first = {first}, .held = {n}}));
    BoundPlan& plan = model_.function(name, {.batch = 1, .seq = size, .cache = capacity()});
    upload(plan, batch);
    plan.run();
    model_.copy_rows(of_one, of_all, first, n);
    alone_.n_rows = first + n;
    if (states_) states_->read(chunk.entry, tokens);
    last_[static_cast<size_t>(chunk.entry)] = {tokens.back(), static_cast<int32_t>(first + n - 1)};
    return plan;
  }

  // True if a picture's row stands at this position of the entry.
  bool is_picture(size_t entry, int64_t position) const {
    if (pictures_.empty()) return false;
    const std::vector<int32_t>& rows = pictures_[entry].rows;
    return position < std::ssize(rows) && rows[static_cast<size_t>(position)] >= 0;
  }

  // Tokens [from, from + size) of each chunk. What is left of a row repeats the entry's last token
  // where it stands, or at no position: the cache stays as it is. Behind a row of a picture, whose
  // token alone makes another one, it stands where the next token will.
  const BoundPlan& run(std::string_view name, int64_t size, std::span<const TextChunk> chunks,
                       int64_t from) {
    if (is_alone(chunks)) return run_alone(name, size, chunks.front(), from);
    for (const TextChunk& chunk : chunks) {
      if (chunk.entry == alone_.entry) alone_.n_rows = std::min(alone_.n_rows, chunk.first);
    }
    if (source_.tensors.empty() && functions_.back().name == function::encode) {
      throw Error(ErrorCode::invalid_argument,
                  "[model] expected a source, which {} attends to, got a text alone",
                  model_def(model_.spec().kind).name);
    }
    Batch batch = empty_batch(n_entries(), size);
    add_source(source_, batch);
    PositionRule places;
    std::vector<const TextChunk*> of_entry(last_.size());
    for (const TextChunk& chunk : chunks) of_entry[static_cast<size_t>(chunk.entry)] = &chunk;
    for (size_t entry = 0; entry < last_.size(); ++entry) {
      Last& last = last_[entry];
      const TextChunk* chunk = of_entry[entry];
      const int64_t n_left = chunk == nullptr ? 0 : std::ssize(chunk->tokens) - from;
      const int64_t n = std::clamp<int64_t>(n_left, 0, size);
      const auto row = batch.ints("tokens").begin() + static_cast<int64_t>(entry) * size;
      if (n > 0) {
        std::copy_n(chunk->tokens.begin() + from, n, row);
        last = {chunk->tokens[static_cast<size_t>(from + n - 1)],
                static_cast<int32_t>(chunk->first + from + n - 1)};
      }
      std::fill(row + n, row + size, last.token);
      const int64_t n_more = n < size && is_picture(entry, last.position) ? 1 : 0;
      places.held.push_back(n > 0 ? n + n_more : 0);
      places.first.push_back(n > 0 ? chunk->first + from : last.position + n_more);
    }
    if (!pictures_.empty()) add_pictures(model_.spec(), pictures_, places, batch);
    batch.set(positions_input(), positions(n_entries(), size, places));
    BoundPlan& plan =
        model_.function(name, {.batch = n_entries(), .seq = size, .cache = capacity()});
    upload(plan, batch);
    plan.run();
    if (!states_) return plan;
    for (const TextChunk& chunk : chunks) {  // behind the run, which may have failed
      const int64_t n = std::min(std::ssize(chunk.tokens) - from, size);
      if (n <= 0) continue;
      const auto of_call = chunk.tokens.subspan(static_cast<size_t>(from));
      states_->read(chunk.entry, of_call.first(static_cast<size_t>(n)));
    }
    return plan;
  }

  struct Last {
    int32_t token = 0, position = 0;
  };
  // The entry whose first rows the cache of one text holds, too.
  struct Alone {
    int64_t entry = -1, n_rows = 0;
  };
  bool picks_, runs_one_alone_;
  Alone alone_;
  std::vector<FunctionKey> functions_;
  Inference model_;
  std::vector<Last> last_;            // of each entry
  std::optional<TextStates> states_;  // of a model that has some
  Batch source_;
  std::vector<EntryPictures> pictures_;  // of each entry, of a model that sees them
};

// Recomputing by a loaded model's own program.
class LoadedRecomputedModel : public RecomputedModel {
 public:
  LoadedRecomputedModel(const ModelSource& source, const TextModelOptions& options,
                        const TextMachine& machine)
      : RecomputedModel(options, source.spec.vocab), model_(source, functions(options), machine) {}

  int64_t planned_bytes() const override { return model_.planned_bytes(); }

 private:
  static std::vector<FunctionKey> functions(const TextModelOptions& options) {
    std::vector<FunctionKey> keys;
    for (const int64_t seq : padded_lengths(1, options.capacity))
      keys.push_back({function::logits, {.batch = 1, .seq = seq}});
    return keys;
  }

  std::vector<float> logits_of(const Batch& row, int64_t first, int64_t n) override {
    BoundPlan& plan = model_.function(function::logits, {.batch = 1, .seq = row.seq});
    upload(plan, row);
    plan.run();
    return model_.read_logits(plan, first, n);
  }

  Inference model_;
};

}  // namespace

void TextModel::check_chunks(std::span<const TextChunk> chunks) const {
  for (const TextChunk& chunk : chunks) {
    const auto n = std::ssize(chunk.tokens);
    CHECK(chunk.entry >= 0 && chunk.entry < n_entries());
    CHECK(chunk.first >= 0 && n >= 1 && chunk.first + n <= capacity());
  }
}

void TextModel::add_source(const Batch& source, Batch& batch) {
  for (const HostTensor& tensor : source.tensors) {
    CHECK(tensor.spec.per == Per::row);
    if (batch.find(tensor.spec.name) == nullptr) batch.set(tensor.spec, tensor.values);
  }
}

Batch TextModel::of_entries(const Batch& sources) const {
  if (n_sources_ == n_entries_) return sources;
  const int64_t n_copies = n_entries_ / n_sources_;
  Batch batch{.batch = n_entries_, .seq = sources.seq};
  for (const HostTensor& tensor : sources.tensors) {
    const int64_t n = tensor.spec.n_inner();
    std::visit(
        [&](const auto& values) {
          std::decay_t<decltype(values)> repeated;
          for (int64_t row = 0; row < n_entries_; ++row) {
            const auto first = values.begin() + row / n_copies * n;
            repeated.insert(repeated.end(), first, first + n);
          }
          batch.set(tensor.spec, std::move(repeated));
        },
        tensor.values);
  }
  return batch;
}

void TextModel::read_pictures(int64_t, EntryPictures) {
  throw Error(ErrorCode::invalid_argument,
              "[model] expected a model that sees pictures, on a device with kernels for a KV "
              "cache, got another one");
}

void TextModel::take_over(std::span<const int64_t>, int64_t) {
  CHECK(false);
}

void TextModel::pick(std::span<const TextChunk>, const VisitPick&) {
  CHECK(picks());
}

std::unique_ptr<TextModel> make_cached_model(const ModelSource& source,
                                             const TextModelOptions& options,
                                             const TextMachine& machine) {
  return std::make_unique<CachedModel>(source, options, machine);
}

std::unique_ptr<TextModel> make_recomputed_model(const ModelSource& source,
                                                 const TextModelOptions& options,
                                                 const TextMachine& machine) {
  return std::make_unique<LoadedRecomputedModel>(source, options, machine);
}

std::unique_ptr<TextModel> make_text_model(const ModelSource& source,
                                           const TextModelOptions& options,
                                           const TextMachine& machine) {
  if (!model_def(source.spec.kind).translates) expect_text(source.spec);
  if (model_def(source.spec.kind).is_recurrent)
    return make_recomputed_model(source, options, machine);
  const Dtype dtype = find_recipe(source.recipe).compute;
  if (serves_cache(machine.catalogue, filled(source.spec), dtype)) {
    return make_cached_model(source, options, machine);
  }
  machine.log.warning("{} has no kernels for a KV cache in {}: every token runs its whole text",
                      machine.device.info().name, dtype_name(dtype));
  return make_recomputed_model(source, options, machine);
}

}  // namespace octet
