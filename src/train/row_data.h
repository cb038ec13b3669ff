// The data of models that read other arrays than a text's tokens: arrays in files, and pictures.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "data/row_plan.h"
#include "nn/model.h"

namespace octet {

// Nothing where the data is text: for a model that reads "tokens" alone and losses of the tokens
// that follow or are hidden, unless data.train names .safetensors files. Those hold arrays
// (infer/array_rows.h); a model without tokens reads pictures (data/images/image_source.h). Throws
// Error{invalid_argument} where data.train is empty or keys ask for what such data has not,
// Error{bad_data} where the data is not what the model reads.
std::optional<Dataset> open_row_data(const Files& files, const RunConfig& config,
                                     const ModelSpec& spec, const Log& log);

// How much there is: "120 training and 8 validation samples".
std::string amount_text(const Dataset& data);

// The rows of a run's data in the order of the configuration, and of its validation data those that
// one evaluation reads (make_eval_rows): of samples as many as eval_bytes hold, one at least.
RowLoader make_loader(const Dataset& data, const RunConfig& config);
std::unique_ptr<EvalRows> make_eval_rows(const Dataset& data, const RunConfig& config,
                                         const ModelSpec& spec,
                                         const std::vector<int64_t>& shorter = {});
// Whether there is something to evaluate.
bool has_validation(const Dataset& data);
// Changes with what an evaluation reads.
uint64_t validation_identity(const Dataset& data, const RunConfig& config, const ModelSpec& spec);

}  // namespace octet
