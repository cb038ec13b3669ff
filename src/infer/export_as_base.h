// An export in the form of the folder of 8-bit weights that a run, or an adapter, began with:
// compressed-tensors (float-quantized), ModelOpt's FP8, or fine-grained FP8 (quant_method fp8).
// Each weight that the base holds in E4M3 has its grid of scales, in their type and under their
// name, and config.json the base's quantization_config:
//   not changed by the training   the base's codes and scales, bit for bit
//   changed                       scale = amax / 448 of what it covers, rounded to the scales' type
//                                 (F32 or BF16, or powers of two where the base says so), and codes
//                                 rounded to nearest even; of a run its masters, merged adapters
// Other tensors have the base's type, and its bytes where they are not changed. Scales of inputs
// and of a cache are the base's: those of fixed inputs are not measured again.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "infer/export_tensors.h"

namespace octet {

class BaseForm {
 public:
  // Throws Error{invalid_argument} where the source began with no such folder; Error{bad_data}
  // where it is gone or holds 8-bit weights of another form.
  BaseForm(const Files& files, const ModelSource& source);

  // Tensors as by export_tensors. `weights` must outlive the result.
  std::vector<TensorSource> tensors(const ExportWeights& weights) const;
  // The base's quantization_config, with modules that it had not left as they are.
  Json quantization() const;
  // Further files that say it, by name: hf_quant_config.json of ModelOpt's.
  const std::map<std::string, std::string>& texts() const { return texts_; }

 private:
  std::shared_ptr<const WeightReader> base_;  // shared with what reads it later
  bool has_powers_ = false;
  Json quantization_;
  std::vector<std::string> new_modules_;  // linears that the base has not
  std::map<std::string, std::string> texts_;
};

}  // namespace octet
