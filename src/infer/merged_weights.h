// Adapters merged into their base, in f32, summed in double:
//
//   W' = W + s B A                             s = alpha / rank, or alpha / sqrt(rank) of rsLoRA
//   W'[o] = m[o] / |W[o] + s B A[o]| (W + s B A)[o]     DoRA (Liu et al. 2024), o an output
//
// where W is what the base was while they were trained: of a run rounded to its format
// (passes/precision/store_frozen.h), of PEFT's folder as it is stored. Pieces of a weight are made
// one by one; no whole weight is held. What was trained whole beside the adapters is as it was
// trained.
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
#include "infer/peft_adapter.h"
#include "infer/weights.h"

namespace octet {

// The weights that a frozen base keeps in eight bits: of the layers' linears.
std::set<std::string> frozen_matrices(const ModelSpec& spec);

// |W| of each output of an adapter's linear, of the weight's elements as `read` gives them; in
// double.
std::vector<double> output_norms(const LoraAdapter& adapter, const ReadValues& read);

class MergedWeights {
 public:
  // Throws Error{bad_data} where the base is not there or not the one that the note names, or where
  // the file lacks a factor of an adapter.
  MergedWeights(const Files& files, const AdapterNote& note, const std::string& adapters,
                const ModelSpec& spec, NonfiniteWeights nonfinite);

  // Weights of a folder of PEFT's beside the model `base`, whose spec is `spec` or, where the
  // adapter changes a head or an embedding that it ties, the same tied. A parameter has the type of
  // its base, and BF16 where that is of eight bits.
  MergedWeights(const Files& files, const WeightPath& path, const ModelSpec& spec,
                NonfiniteWeights nonfinite);

  // Same as WeightReader's; from several threads at a time.
  void read(const std::string& parameter, int64_t first, std::span<float> out) const;
  // Tensor as stored; of a run, of the type that it computed in.
  const StoredTensor& stored(const std::string& parameter) const { return stored_.at(parameter); }
  void read_stored(const std::string& parameter, std::span<std::byte> out, uint64_t first) const;
  const WeightReader& base() const { return base_; }

 private:
  // An adapter and its tensors.
  struct Factors {
    LoraAdapter adapter;
    std::string a, b, magnitude;  // "": none
  };
  // Addition to a weight, and how the base keeps it.
  struct Change {
    std::optional<FrozenWeight> frozen;
    const Factors* factors = nullptr;
    std::vector<float> a, b;
    std::vector<double> gain;  // DoRA's m / norm, of each output
  };
  void add_factors(Factors factors);
  std::shared_ptr<const Change> change_of(const std::string& parameter) const;
  void find_gain(const std::string& parameter, Change& change) const;
  void read_base(const std::string& parameter, const Change& change, int64_t first,
                 std::span<float> out) const;
  void add_product(const Change& change, int64_t n_cols, int64_t first, std::span<float> out) const;
  const StoredTensor& checked(const std::string& name, const Shape& shape) const;
  std::vector<float> factor(const std::string& name, const Shape& shape) const;

  Dtype compute_ = Dtype::f32;  // what the base is rounded to; f32: as it is
  FrozenFormat frozen_format_ = FrozenFormat::as_computed;
  WeightReader base_;
  ModelFiles adapters_;
  std::set<std::string> frozen_;                // in eight bits
  std::map<std::string, std::string> whole_;    // tensors that are parameters as they are
  std::map<std::string, std::string> beneath_;  // tensors in the place of the base's
  std::map<std::string, std::string> tied_;     // parameters that the base has by another name
  std::map<std::string, Factors> by_weight_;
  std::map<std::string, StoredTensor> stored_;
  mutable std::mutex mutex_;
  // A few: pieces of one parameter come together.
  mutable std::map<std::string, std::shared_ptr<const Change>> recent_;
};

}  // namespace octet
