// Evaluation tasks of pictures: how often a classifier is right on the pictures of a test set.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "data/rows.h"
#include "infer/model_source.h"

namespace octet {

struct ImageTask {
  std::string_view name, help;
  std::vector<std::string_view> paths;  // below the folder of the tasks; the first that is there
};
std::span<const ImageTask> image_tasks();
const ImageTask* find_image_task(std::string_view name);  // nullptr where none has this name

struct ImageTaskQuery {
  const ImageTask& task;
  std::string folder;  // --task-data
  int64_t limit = 0;   // pictures; 0: all
};
// The pictures of a task as rows of the model. Throws
// Error{invalid_argument}, "[eval] ...", for a model that gives no classes of pictures,
// Error{bad_data} where no file is there, naming all that were looked for, and where a label is no
// class.
std::unique_ptr<EvalRows> image_task_rows(const Files& files, const ImageTaskQuery& query,
                                          const ModelSource& source, const Log& log);

}  // namespace octet
