// The tensors of an export, and where their bytes come from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "infer/export.h"
#include "infer/tensor_streams.h"
#include "infer/weights.h"
#include "io/safetensors.h"
#include "passes/precision/policy.h"

namespace octet {

// The copy of a run's weight that is read; of a folder both are the weight itself.
enum class WeightValues : uint8_t { computed, master };

// A folder's weights, or a run's with its masters.
class ExportWeights {
 public:
  ExportWeights(const Files& files, const ModelSource& source);
  // The weights of files that are open.
  ExportWeights(const ModelSpec& spec, WeightReader weights);

  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  const ModelDef& model() const { return model_; }
  const WeightReader& compute() const { return compute_; }
  bool has_masters() const { return masters_.has_value(); }
  // Elements of one of parameters(), which this must outlive; refused where they are not finite in
  // `dtype`, whose rounding they go into.
  ReadValues values(const ParameterSpec& parameter, WeightValues copy,
                    Dtype dtype = Dtype::f32) const;
  // The scales of a run whose forward GEMMs read the weights in E4M3 blocks of 128 x 128, made of
  // the weights that it computes with: an export in such blocks has their bytes.
  const std::optional<BlockScale>& trained_blocks() const { return trained_blocks_; }
  // Weights that make the one scale of a weight that the run's forward GEMMs read in E4M3
  // (infer/trained_scales.h); empty of others.
  const std::vector<std::string>& trained_sharers(const std::string& parameter) const;
  // Scales of blocks that are encoded anew: as trained, else as the folder's are.
  BlockScale block_scale() const { return trained_blocks_.value_or(stored_blocks_); }
  // True if scales that are copied and scales that are encoded anew are powers of two.
  bool keeps_powers() const {
    return stored_blocks_ == BlockScale::power && block_scale() == BlockScale::power;
  }
  // True if weights that train.freeze kept are written as the run rounded them, for want of those
  // that it began with.
  bool lacks_frozen() const { return lacks_frozen_; }
  // A linear of a decoder layer: what becomes 8 bits.
  bool is_linear(const ParameterSpec& parameter) const;

 private:
  void read_master(const ParameterSpec& parameter, int64_t first, std::span<float> out) const;
  void open_frozen(const Files& files, const ModelSource& source);
  bool read_frozen(const ParameterSpec& parameter, int64_t first, std::span<float> out) const;
  void read_scaled(const StoredTensor& master, const std::string& parameter, int64_t first,
                   std::span<float> out) const;

  std::vector<ParameterSpec> parameters_;
  const ModelDef& model_;
  WeightReader compute_;
  std::optional<SafetensorsReader> masters_;
  std::optional<BlockScale> trained_blocks_;
  std::map<std::string, std::vector<std::string>> trained_sharers_;
  BlockScale stored_blocks_ = BlockScale::max;  // as config.json says
  std::vector<std::string> freeze_;             // patterns
  std::optional<WeightReader> frozen_;          // what they began as
  bool lacks_frozen_ = false;
};

// In the order of the model, scales behind their weights. `weights` must outlive the result.
std::vector<TensorSource> export_tensors(const ExportWeights& weights, ExportDtype dtype);

}  // namespace octet
