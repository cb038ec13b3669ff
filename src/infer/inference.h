// A loaded model that runs forward: its program without optimizer states, weights in place.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "compile/program.h"
#include "infer/model_source.h"
#include "infer/weights.h"
#include "nn/model.h"
#include "passes/precision/recipe.h"
#include "passes/precision/store_frozen.h"
#include "runtime/executor.h"

namespace octet {

// A recipe; of a quantized model what its weights say of its activations (WeightReader::inputs;
// load() CHECKs that they say the same); and what the layers' matrices are kept as.
struct Precision {
  // NOLINTNEXTLINE(google-explicit-constructor): a recipe's name alone is one.
  Precision(std::string recipe, FakeQuantizeInputs inputs = {},
            FrozenFormat stored = FrozenFormat::as_computed)
      : recipe(std::move(recipe)), inputs(std::move(inputs)), stored(stored) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Precision(const char* recipe) : recipe(recipe) {}
  std::string recipe;
  FakeQuantizeInputs inputs = {};
  FrozenFormat stored = FrozenFormat::as_computed;  // passes/precision/store_frozen.h
  RecipeOptions recipe_options = {};                // but `frozen`, which is `stored`
  LossOptions loss = {};                            // of function::evaluate: the run's
};

// Precision of a model that is loaded from these weights: recipes that predict scales do so from
// the weights' RMS (infer/loaded_rms.h), unless the source's options say what to start from.
Precision precision_of(const ModelSource& source, const WeightReader& weights);

using OnProgress = std::function<void(int64_t n_done, int64_t n)>;

// Machine on which models are read from and run.
struct TextMachine {
  const Files& files;
  Device& device;
  Catalogue& catalogue;
  Log log = {};
};

// Options to compile functions from; of functions with a batch `size` is the first one's.
ProgramOptions inference_options(const ModelSpec& spec, const Precision& precision,
                                 const BatchSize& size);

// Throws Error{invalid_argument} for a model that writes no text.
void expect_text(const ModelSpec& spec);

class Inference {
 public:
  // Compiles all `functions` (at least one) at once, because they share one allocation. Of models
  // that write no text there is function::logits, what the model gives, and with a loss of their
  // own function::evaluate.
  Inference(const ModelSpec& spec, const Precision& precision,
            std::span<const FunctionKey> functions, Device& device, Catalogue& catalogue);

  // The source's model in its recipe, with its weights.
  Inference(const ModelSource& source, std::span<const FunctionKey> functions,
            const TextMachine& machine)
      : Inference(source,
                  WeightReader(machine.files, source.weights, source.spec, source.nonfinite),
                  functions, machine) {}

  // Weights narrower than stored are rounded to nearest even. On the device's host threads, through
  // memory of the host that it copies from at its best speed.
  void load(const WeightReader& weights);

  // One of the functions given at construction.
  BoundPlan& function(std::string_view name, const BatchSize& size);

  // Rows [first, first + n) of an output of a function that has run, in f32.
  std::vector<float> read_rows(const BoundPlan& plan, std::string_view output, int64_t first,
                               int64_t n);
  // The same of the logits.
  std::vector<float> read_logits(const BoundPlan& logits, int64_t first, int64_t n = 1) {
    return read_rows(logits, "logits", first, n);
  }

  // An output of a function that has run; `to` has its bytes.
  void read(const BoundPlan& plan, std::string_view output, std::span<std::byte> to);

  // In the KV cache of this batch and size, every entry gets the first rows of entry 0, and all
  // rows of its source.
  void copy_cache(const BatchSize& size, int64_t n_rows);

  // Rows [first, first + n) of an entry of one cache to an entry of another, of as many rows; not
  // those of a source. A recurrence's states (ir/caches.h) have no rows: here and below each is
  // copied whole.
  struct CacheEntry {
    BatchSize size;
    int64_t entry = 0;
  };
  void copy_rows(const CacheEntry& from, const CacheEntry& to, int64_t first, int64_t n);

  // In a KV cache, every entry gets the first rows of entry from[entry], as they were before.
  void reorder_cache(const BatchSize& size, std::span<const int64_t> from, int64_t n_rows);

  // States of recurrences: an entry's are kept at a place in [0, batch], and go back from there.
  void keep_states(const CacheEntry& from, int64_t place);
  void restore_states(const CacheEntry& to, int64_t place);

  // Results of encode for `n_from` sources become those of `n_to` entries, of n_to / n_from each.
  void copy_sources(int64_t n_from, int64_t n_to);

  const ModelSpec& spec() const { return spec_; }
  Arenas& arenas() { return *arenas_; }
  int64_t planned_bytes() const;

 private:
  Inference(const ModelSource& source, const WeightReader& weights,
            std::span<const FunctionKey> functions, const TextMachine& machine)
      : Inference(source.spec, precision_of(source, weights), functions, machine.device,
                  machine.catalogue) {
    load(weights);
  }

  ModelSpec spec_;
  FakeQuantizeInputs inputs_;
  FrozenFormat stored_;
  Program program_;
  std::unique_ptr<Arenas> arenas_;
  enum class StatesGo : uint8_t { to_place, from_place };
  void move_states(const CacheEntry& entry, int64_t place, StatesGo where);

  std::unique_ptr<DeviceMemory> held_;         // of reorder_cache
  std::unique_ptr<DeviceMemory> kept_states_;  // by place
  std::map<FunctionKey, std::unique_ptr<BoundPlan>> bound_;
};

}  // namespace octet
