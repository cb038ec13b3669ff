// Post-training quantization of a model, from a trained folder or run to a folder that `octet eval`
// and `octet generate` run as such. Of what a batch holds it knows nothing: rows bring the inputs
// that the model declares.
#pragma once

#include "base/log.h"
#include "data/token_stream.h"
#include "infer/model_source.h"
#include "ptq/export.h"
#include "ptq/options.h"
#include "ptq/progress.h"

namespace octet {

struct PtqRequest {
  const ModelSource& source;
  PtqOptions options;
  std::string out;
  std::vector<Batch> rows;  // that it is calibrated on
  bool dequantize = false;  // write BF16
  PtqStart start = PtqStart::go_on;
};

struct PtqResult {
  std::vector<SiteReport> reports;  // in the order of the model
  PtqLayout layout = PtqLayout::own;
  int64_t n_bytes = 0;
};

struct PtqHooks {
  Log log = {};
  std::function<void(size_t site, size_t n_sites, const std::string& name)> on_site = {};
};

// The request's options are checked() ones. What was decided is kept in the folder until it is
// whole, so that a later call with the same weights, text and options goes on where one was ended.
// Throws Error{invalid_argument} for a folder that is not free or holds what another call began,
// Error{bad_data} for a model that is quantized already, Error{numerics} where calibration gives
// NaN or Inf.
PtqResult quantize_model(Files& files, const PtqRequest& request, Backend& backend,
                         const PtqHooks& hooks);

// Rows of `seq` tokens from the beginning of a stream, `samples` of them, in batches of one size of
// which the last may be smaller. Throws Error{bad_data} where the text is too short.
std::vector<Batch> calibration_rows(const TokenStream& stream, int64_t samples, int64_t seq);
// The same of the first rows of any others, or of as many as there are.
std::vector<Batch> calibration_rows(const EvalRows& rows, int64_t samples);

}  // namespace octet
