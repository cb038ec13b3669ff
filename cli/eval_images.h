// octet eval --tasks cifar10,...: pictures of a test set.
#pragma once

#include <string>
#include <vector>

#include "cli/eval_tasks.h"

namespace octet {

// All tasks are tasks of pictures, or none is; throws Error{invalid_argument} where some are.
bool are_image_tasks(const std::vector<std::string>& tasks);

// Prints a row for each task and source, as run_eval_tasks() does.
void run_image_tasks(const EvalTasksCall& call, const std::vector<ModelSource>& sources,
                     const GlobalOptions& options);

}  // namespace octet
