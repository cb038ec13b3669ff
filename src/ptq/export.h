// A quantized model as a folder: in the ecosystem's layouts where they have words for it
// (io/quantization_config.h), else in Octet's own; or dequantized, for programs that read neither.
#pragma once

#include "base/log.h"
#include "infer/export.h"
#include "infer/export_tensors.h"
#include "ptq/calibrate.h"

namespace octet {

enum class PtqLayout : uint8_t { ecosystem, own, dequantized };

struct PtqModel {
  const ModelSource& source;
  const ExportWeights& weights;
  const std::vector<SiteResult>& sites;
  const PtqOptions& options;
};

// Warns of what programs of the ecosystem do not load, or load otherwise, in a folder of its
// layout: partial blocks, schemes that vLLM has not, a quantized head, and linears that read one
// value with several scales of it.
void warn_of_unread(const PtqModel& model, const Log& log);

// The ecosystem's, unless the format is Octet's alone, an extent is no multiple of its group, sums
// are quantized too, a weight is a convolution's elsewhere (that of patches), or no other program
// loads 8-bit weights of the architecture.
PtqLayout layout_of(const PtqModel& model);

// `folder` is there. Tensors that are not quantized stay as they are stored (dequantized: BF16).
ExportResult write_quantized(Files& files, const PtqModel& model, PtqLayout layout,
                             const std::string& folder, const Log& log);

}  // namespace octet
