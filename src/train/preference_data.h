// Pairs of a chosen and a rejected answer as a run's data, and what its reference model says of
// them.
#pragma once

#include <string>

#include "base/files.h"
#include "data/dataset.h"
#include "train/engine.h"
#include "train/run_inputs.h"
#include "train/text_rows.h"

namespace octet {

// Rows of the files that the configuration names (data/preference_rows.h), rendered as
// conversations are. Throws Error{invalid_argument} where keys ask for what such rows have not,
// Error{bad_data} as read_preferences() does.
Dataset open_preferences(const SpanRun& run, const RunInputs& inputs);

// The numbers of Dataset::references: from `file`, where it holds them of these rows, else of the
// engine's weights as they are, by its function `evaluate`, so that a run's first weights are the
// reference. All ranks call it. Returns whether it computed them; nothing where there are none to
// set.
enum class ReferenceFrom : uint8_t { nowhere, file, weights };
struct ReferenceRun {
  const Files& files;
  TrainEngine& engine;
  const RunConfig& config;
};
ReferenceFrom set_references(const ReferenceRun& run, const Dataset& data, const std::string& file);
// Into a file for set_references().
void write_references(Files& files, const Dataset& data, const std::string& file);

}  // namespace octet
