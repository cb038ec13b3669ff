// Data that octet ptq calibrates and evaluates on: a text of a decoder, rows of any other model.
// The command and its methods see batches and figures alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/common.h"
#include "infer/evaluate.h"
#include "infer/model_source.h"
#include "plan/backend.h"

namespace octet {

struct PtqDataFlags {
  std::vector<std::string> calib, eval;  // files and folders; eval may be empty
  std::string split_on = {};             // text between a decoder's documents
  int64_t seq = 0;                       // tokens of a calibration row
  int64_t eval_tokens = 0;               // of a decoder; 0: all
  int64_t eval_rows = 0;                 // of other models; 0: all
  int64_t batch = 8;                     // that are evaluated at a time
};

// Figures of an evaluation, each of the same samples (rows, documents) in the same order.
struct PtqFigures {
  std::vector<SampleMetric> all;
  std::string counted = "labels";  // what the first one's n_tokens count
  bool has_perplexity = false;     // of the first one, which is in nats a token
  Figures whole = {};              // as RowFigures
};

class PtqData {
 public:
  virtual ~PtqData() = default;
  // Rows to calibrate on, `samples` of them or as many as there are.
  virtual std::vector<Batch> calibration(int64_t samples) const = 0;
  virtual bool has_evaluation() const = 0;
  // In fp32, with the inputs of linears quantized as the model's weights say.
  virtual PtqFigures evaluate(const ModelSource& source, Backend& backend) const = 0;
};

// Opens the files. Throws Error{bad_data} or Error{invalid_argument} for what the model does not
// read.
std::unique_ptr<PtqData> open_ptq_data(const ModelSource& source, const PtqDataFlags& flags,
                                       const Log& log);

}  // namespace octet
