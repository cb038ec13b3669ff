#include "infer/tasks/images.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "data/images/image_rows.h"
#include "data/row_plan.h"
#include "infer/image_transforms.h"

namespace octet {
namespace {

const std::vector<ImageTask>& list() {
  static const std::vector<ImageTask> tasks = {
      {"cifar10",
       "10,000 pictures of 10 classes",
       {"cifar10/test_batch.bin", "cifar10/test_jpegdecoded.bin.xz"}},
      {"mnist",
       "10,000 digits",
       {"mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-images-idx3-ubyte"}},
  };
  return tasks;
}

std::string find_file(const Files& files, const ImageTask& task, const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string_view path : task.paths) {
    paths.push_back(join_path(folder, path));
    if (files.exists(paths.back())) return paths.back();
  }
  throw Error(ErrorCode::bad_data, "[eval] {}: expected one of {}, got none", task.name,
              fmt::join(paths, ", "));
}

void expect_classifier(const ModelSpec& spec) {
  const ModelDef& def = model_def(spec.kind);
  const bool has_classes = !def.heads.empty() && head_of(spec).head == ModelHead::classes;
  if (!def.reads_text && has_classes) return;
  throw Error(ErrorCode::invalid_argument,
              "[eval] expected a model that gives classes of pictures, got {}", def.name);
}

}  // namespace

std::span<const ImageTask> image_tasks() {
  return list();
}

const ImageTask* find_image_task(std::string_view name) {
  const auto at = std::ranges::find(list(), name, &ImageTask::name);
  return at == list().end() ? nullptr : &*at;
}

std::unique_ptr<EvalRows> image_task_rows(const Files& files, const ImageTaskQuery& query,
                                          const ModelSource& source, const Log& log) {
  expect_classifier(source.spec);
  const auto images = open_images(files, find_file(files, query.task, query.folder), {.log = log});
  std::vector<InputSpec> inputs = model_def(source.spec.kind).inputs(source.spec, {});
  inputs.push_back(row_label_input("labels"));
  inputs.back().bound = source.spec.classes;
  const auto rows = image_rows(images, inputs, evaluation_transforms(files, source, log), log);
  return std::make_unique<SampleEval>(first_rows(rows, query.limit), RowOptions{.seq = 1});
}

}  // namespace octet
