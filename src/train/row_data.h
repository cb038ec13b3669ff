// The data of models that read other arrays than a text's tokens: arrays in files, and pictures.
#pragma once

#include <functional>
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

// The use of the rows: they train a model, or say how good a trained one is.
enum class DataUse : uint8_t { training, evaluation };

inline constexpr const char* kUnnamedClass = "LABEL_";  // and its number

struct ClassNumbering {
  const std::vector<std::string>& known;  // names_of_model()
  const RunConfig& config;
  DataUse use = DataUse::training;
  const Log& log;
};
// The names by number for data whose classes are `found`: those of the model, where it knows all of
// them. Else `found` in its own order, with a warning where the model has a head already: of a
// model without names, and in training where model.head asks for a new head, or model.classes is
// more than these. Throws Error{bad_data}
// that names the classes that the model does not know, or has twice.
std::vector<std::string> number_classes(const std::vector<std::string>& found,
                                        const ClassNumbering& how);

// Nothing where the data is text: for a model that reads "tokens" alone and losses of the tokens
// that follow or are hidden, unless data.train names .safetensors files. Those hold arrays
// (infer/array_rows.h); a model without tokens reads pictures (data/images/image_source.h). Throws
// Error{invalid_argument} where data.train is empty or keys ask for what such data has not,
// Error{bad_data} where the data is not what the model reads.
std::optional<Dataset> open_row_data(const Files& files, const RunConfig& config,
                                     const ModelSpec& spec, const Log& log,
                                     DataUse use = DataUse::training);

// Samples that `open` makes of files: of data.train those for training, and of data.val, or of the
// end of data.train, those for validation.
using RowOpener = std::function<std::shared_ptr<const RowSource>(const std::vector<std::string>&)>;
Dataset split_rows(const RunConfig& config, const RowOpener& open);

// How much there is: "120 training and 8 validation samples".
std::string amount_text(const Dataset& data);

// The part of the validation data that one evaluation reads, and what it leaves out.
struct EvalAmount {
  int64_t n = 0, n_all = 0;
  std::string_view unit = "samples";         // or "tokens", "documents"
  std::string_view key = "train.eval_rows";  // that limits them
  bool has_parts = false;                    // of some a part alone
  bool is_all() const { return n >= n_all && !has_parts; }
  std::string text() const;  // "all 120 samples", "42 of 120 samples"
};
// A line where that is less than all.
void tell_amount(const EvalAmount& amount, const Log& log);
// A warning where an evaluation has no row of a validation text: why.
void warn_without_rows(const Dataset& data, const RunConfig& config, const Log& log);
// Of packed documents that an evaluation of so many tokens reads.
EvalAmount amount_of_documents(const TokenStream& text, const RowOptions& options,
                               int64_t max_tokens);
EvalAmount eval_amount(const Dataset& data, const RunConfig& config, const ModelSpec& spec);

// The rows of a run's data in the order of the configuration, and of its validation data those that
// one evaluation reads: of text as many tokens as train.eval_bytes hold, of samples
// train.eval_rows, or all.
RowLoader make_loader(const Dataset& data, const RunConfig& config);
// Lengths of its rows that are shorter than the longest: these have functions of their own.
std::vector<int64_t> shorter_lengths(const RowLoader& loader, int64_t seq);
std::unique_ptr<EvalRows> make_eval_rows(const Dataset& data, const RunConfig& config,
                                         const ModelSpec& spec,
                                         const std::vector<int64_t>& shorter = {});
// True if there is something to evaluate.
bool has_validation(const Dataset& data);
// Changes with what an evaluation reads.
uint64_t validation_identity(const Dataset& data, const RunConfig& config, const ModelSpec& spec);

}  // namespace octet
