// Adapters merged into their base: W' = W + (alpha / rank) B A, in f32, where W is what the base
// was while they were trained, rounded to its format (passes/precision/store_frozen.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "infer/adapter_note.h"
#include "infer/weights.h"

namespace octet {

// Data and scales of a matrix in a frozen base's 8-bit format; the scales are a grid of 1 x 1 or of
// 128 x 128 blocks. Throws Error{bad_data} naming the weight where it is not finite.
struct FrozenMatrix {
  std::vector<uint8_t> data;
  std::vector<float> scales;
};
FrozenMatrix freeze(FrozenFormat format, const Shape& shape, std::span<const float> values,
                    const std::string& name);

// The weights that a frozen base keeps in eight bits: of the layers' linears.
std::set<std::string> frozen_matrices(const ModelSpec& spec);

class MergedWeights {
 public:
  // Throws Error{bad_data} where the base is not there or not the one that the note names, or where
  // the file lacks a factor of an adapter.
  MergedWeights(const Files& files, const AdapterNote& note, const std::string& adapters,
                const ModelSpec& spec);

  // As WeightReader's; from several threads at a time.
  void read(const std::string& parameter, int64_t first, std::span<float> out) const;
  // Of the type that the run computed in.
  const StoredTensor& stored(const std::string& parameter) const { return stored_.at(parameter); }
  void read_stored(const std::string& parameter, std::span<std::byte> out, uint64_t first) const;

 private:
  using Values = std::shared_ptr<const std::vector<float>>;
  Values whole(const std::string& parameter) const;
  std::vector<float> base_values(const std::string& parameter) const;
  std::vector<float> merged(const std::string& parameter) const;
  std::vector<float> factor(const std::string& name, const Shape& shape) const;

  AdapterNote note_;
  WeightReader base_;
  ModelFiles adapters_;
  std::set<std::string> frozen_;  // in eight bits
  std::map<std::string, LoraAdapter> by_weight_;
  std::map<std::string, StoredTensor> stored_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Values> recent_;  // a few: pieces of one parameter come together
};

}  // namespace octet
