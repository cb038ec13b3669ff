// A model as generation and scoring use it: several texts side by side, each going on from where it
// stands.
//
// Two kinds. Over a KV cache (functions fill and decode, compile/functions.h) a token costs one
// pass of one token; without one, for devices that have no kernels for a cache, it costs a pass
// over its whole text. In fp32 and bf16 on the CPU a text's logits do not depend on the texts
// beside it, on how it was cut into chunks, nor on the kind; but for the last bits where layers
// have states (nn/shape.h, has_state). Of these a text that goes back may be read again from its
// beginning.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "data/inputs.h"
#include "infer/inference.h"
#include "infer/model_source.h"

namespace octet {

// Tokens of text `entry` at positions first, first + 1, ...; at least one.
struct TextChunk {
  int64_t entry = 0, first = 0;
  std::span<const int32_t> tokens = {};
};

// Pictures of a text, for a model that sees some: [images, C, S, S], and of each of its tokens the
// row of them that stands in its place; -1, or behind the last of these: it is text.
struct EntryPictures {
  std::vector<float> pixels = {};
  std::vector<int32_t> rows = {};
};

class TextModel {
 public:
  using Visit =
      std::function<void(const TextChunk& chunk, int64_t token, std::span<const float> logits)>;
  virtual ~TextModel() = default;

  // Source rows of a model with a source (nn/model.h, has_source): arrays of what it declares
  // beside the text, a row of each for every source; which are the entries', or of
  // TextModelOptions::n_sources each that of as many entries one after the other. Comes before all
  // else, which throws Error{invalid_argument} without it, and may come again: what the entries
  // hold is then to be filled anew.
  virtual void read_source(const Batch& rows) = 0;

  // Pictures of a text of this entry, which is filled anew behind the call; entries without such a
  // call have none. The last token of a prompt is none of a picture's. Throws
  // Error{invalid_argument} for a model that sees none, or without a cache.
  virtual void read_pictures(int64_t entry, EntryPictures pictures);

  // Each call: at most one chunk of an entry, that begins at most where the entry ends and ends at
  // most at `capacity`; what the entry held behind it is forgotten.
  virtual void fill(std::span<const TextChunk> chunks) = 0;
  // The same; shows the logits behind each token, f32 [vocab], valid during the call.
  virtual void logits(std::span<const TextChunk> chunks, const Visit& visit) = 0;
  // Each chunk one token; shows the most probable token behind it, the lowest id of equals, and
  // its logit, NaN where there is one. Only where picks().
  using VisitPick = std::function<void(const TextChunk& chunk, int32_t token, float logit)>;
  virtual bool picks() const { return false; }
  virtual void pick(std::span<const TextChunk> chunks, const VisitPick& visit);
  // Every entry becomes the first `n_tokens` of what entry 0 holds.
  virtual void copy_prefix(int64_t n_tokens) = 0;
  // Every entry becomes the first `n_tokens` of what entry from[entry] holds, which is about the
  // same source.
  virtual void take_over(std::span<const int64_t> from, int64_t n_tokens);
  virtual bool has_cache() const = 0;
  virtual int64_t planned_bytes() const = 0;

  int64_t n_entries() const { return n_entries_; }
  int64_t n_sources() const { return n_sources_; }
  int64_t capacity() const { return capacity_; }
  int64_t vocab() const { return vocab_; }

 protected:
  TextModel(int64_t n_entries, int64_t capacity, int64_t vocab, int64_t n_sources = 0)
      : n_entries_(n_entries),
        n_sources_(n_sources > 0 ? n_sources : n_entries),
        capacity_(capacity),
        vocab_(vocab) {}

  void check_chunks(std::span<const TextChunk> chunks) const;
  // Adds the arrays of a source to a batch of as many rows.
  static void add_source(const Batch& source, Batch& batch);
  // The arrays of sources, a row for each entry.
  Batch of_entries(const Batch& sources) const;

 private:
  int64_t n_entries_, n_sources_, capacity_, vocab_;
};

// Uses of logits(): the next token, or many tokens of a text at once.
enum class LogitsFor : uint8_t { generation, scoring };

struct TextModelOptions {
  int64_t n_entries = 1, capacity = 1;
  LogitsFor logits = LogitsFor::generation;
  int64_t n_sources = 0;  // divides n_entries; 0: as many
  bool picks = false;     // for devices whose logits are far from the host; a model with a cache
  // A text that goes on by itself costs a pass of one text, not of n_entries: where a step's time
  // grows with its rows. Takes a cache of one text more. A model with a cache and without a source.
  bool runs_one_alone = false;
};

// With source's weights and recipe. A device without kernels for a cache is logged. Throws
// Error{device} where it does not fit.
std::unique_ptr<TextModel> make_text_model(const ModelSource& source,
                                           const TextModelOptions& options,
                                           const TextMachine& machine);

// True if a text that goes on by itself is to cost a pass of one text, and can.
bool runs_one_alone(const ModelSpec& spec, const TextModelOptions& options);

// True if there are kernels for a cache of this dtype.
bool serves_cache(const Catalogue& catalogue, const ModelSpec& spec, Dtype dtype);

// The functions of a model over a KV cache.
std::vector<FunctionKey> cached_functions(const ModelSpec& spec, const TextModelOptions& options,
                                          const Catalogue& catalogue);

// The two kinds, as make_text_model chooses between them; exposed for tests.
std::unique_ptr<TextModel> make_cached_model(const ModelSource& source,
                                             const TextModelOptions& options,
                                             const TextMachine& machine);
std::unique_ptr<TextModel> make_recomputed_model(const ModelSource& source,
                                                 const TextModelOptions& options,
                                                 const TextMachine& machine);

}  // namespace octet
