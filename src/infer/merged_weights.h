// Adapters merged into their base: W' = W + (alpha / rank) B A, in f32, where W is what the base
// was while they were trained, rounded to its format (passes/precision/store_frozen.h). Pieces of a
// weight are made one by one; no whole weight is held, but those of a head that was trained whole
// beside the adapters and is as it was trained.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "infer/adapter_note.h"
#include "infer/matrix_quantizer.h"
#include "infer/weights.h"

namespace octet {

// The weights that a frozen base keeps in eight bits: of the layers' linears.
std::set<std::string> frozen_matrices(const ModelSpec& spec);

class MergedWeights {
 public:
  // Throws Error{bad_data} where the base is not there or not the one that the note names, or where
  // the file lacks a factor of an adapter.
  MergedWeights(const Files& files, const AdapterNote& note, const std::string& adapters,
                const ModelSpec& spec, NonfiniteWeights nonfinite);

  // As WeightReader's; from several threads at a time.
  void read(const std::string& parameter, int64_t first, std::span<float> out) const;
  // Of the type that the run computed in.
  const StoredTensor& stored(const std::string& parameter) const { return stored_.at(parameter); }
  void read_stored(const std::string& parameter, std::span<std::byte> out, uint64_t first) const;

 private:
  // What is added to a weight, and how the base keeps it.
  struct Change {
    std::optional<FrozenWeight> frozen;
    const LoraAdapter* adapter = nullptr;
    std::vector<float> a, b;
  };
  std::shared_ptr<const Change> change_of(const std::string& parameter) const;
  void add_product(const Change& change, int64_t n_cols, int64_t first, std::span<float> out) const;
  std::vector<float> factor(const std::string& name, const Shape& shape) const;

  AdapterNote note_;
  WeightReader base_;
  ModelFiles adapters_;
  std::set<std::string> frozen_;                    // in eight bits
  std::map<std::string, std::vector<float>> head_;  // trained whole, beside the adapters
  std::map<std::string, LoraAdapter> by_weight_;
  std::map<std::string, StoredTensor> stored_;
  mutable std::mutex mutex_;
  // A few: pieces of one parameter come together.
  mutable std::map<std::string, std::shared_ptr<const Change>> recent_;
};

}  // namespace octet
