// octet eval --tasks spans:FILE,...: answers to questions, parts of a text each.
#pragma once

#include <string>
#include <vector>

#include "cli/eval_tasks.h"

namespace octet {

// All tasks are "spans:FILE", or none is; throws Error{invalid_argument} where some are, and for
// "spans" without a file.
bool are_span_tasks(const std::vector<std::string>& tasks);

// Prints a row for each task and source, as run_eval_tasks() does.
void run_span_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                    const GlobalOptions& options);

}  // namespace octet
