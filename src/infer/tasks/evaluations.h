// RUN/evaluations.jsonl: the results of evaluation tasks beside the run that they are of, a row a
// line with the step of its checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/ordered_json.h"
#include "infer/model_source.h"

namespace octet {

// The step of a run's checkpoint; nothing where the source is no run.
std::optional<int64_t> checkpoint_step(const ModelSource& source);

// Adds rows; an older row of the same step, task, convention, shots, recipe and number of documents
// gives way.
void add_evaluations(Files& files, const std::string& run, const std::vector<OrderedJson>& rows);

// In order; none where there is no file. Lines that are no objects are left out.
std::vector<OrderedJson> read_evaluations(const Files& files, const std::string& run);

}  // namespace octet
