#include "infer/tasks/images.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/images/image_rows.h"
#include "data/sample_loader.h"
#include "infer/batch_inputs.h"
#include "infer/image_transforms.h"
#include "infer/inference.h"
#include "infer/metrics.h"

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

// log(exp(logits[label]) / sum exp(logits))
double log_likelihood(std::span<const float> logits, int32_t label) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return static_cast<double>(logits[static_cast<size_t>(label)]) - largest - std::log(sum);
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
  inputs.push_back(row_label_input("label"));
  inputs.back().bound = source.spec.classes;
  const int64_t n_all = images->n_images(),
                n = query.limit > 0 ? std::min(query.limit, n_all) : n_all;
  return std::make_unique<SampleEval>(
      image_rows(images, inputs, evaluation_transforms(files, source), log), 1, n);
}

ImageScores score_images(const ModelSource& source, const EvalRows& rows, int64_t batch,
                         const TextMachine& machine,
                         const std::function<void(int64_t n_done, int64_t n)>& on_progress) {
  const FunctionKey key{function::logits, {.batch = batch, .seq = 1}};
  const WeightReader weights(machine.files, source.weights, source.spec, source.nonfinite);
  Inference model(source.spec, precision_of(source.recipe, source, weights), std::span(&key, 1),
                  machine.device, machine.catalogue);
  model.load(weights);
  BoundPlan& function = model.function(key.name, key.size);
  const auto n_classes = static_cast<size_t>(source.spec.classes);
  const int64_t first_five = std::min<int64_t>(5, source.spec.classes);
  ImageScores scores;
  for (int64_t first = 0; first < rows.n_rows(); first += batch) {
    const Batch images = rows.at(first, batch);
    upload(function, images);
    function.run();
    const int64_t n = std::min(batch, rows.n_rows() - first);
    const std::vector<float> logits = model.read_rows(function, "classes", 0, n);
    const std::vector<int32_t>& labels = images.ints("label");
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const auto row = std::span(logits).subspan(i * n_classes, n_classes);
      const auto label = std::span(labels).subspan(i, 1);
      scores.log_likelihoods.push_back(log_likelihood(row, label[0]));
      scores.right.push_back(top_k(row, label, 1).share());
      scores.right5.push_back(top_k(row, label, first_five).share());
    }
    if (on_progress) on_progress(first + n, rows.n_rows());
  }
  return scores;
}

}  // namespace octet
