#include "cli/ptq_data.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/calib_option.h"
#include "data/sample_loader.h"
#include "infer/class_scores.h"
#include "infer/inference.h"
#include "infer/model_spec.h"
#include "ptq/ptq.h"
#include "train/model_rows.h"

namespace octet {
namespace {

constexpr int64_t kLongestRow = 2048;

class TextData : public PtqData {
 public:
  TextData(const ModelSource& source, const PtqDataFlags& flags, const Log& log)
      : flags_(flags),
        longest_(std::min(source.seq, kLongestRow)),
        calib_(open_model_text(source, flags.calib, flags.split_on, log)) {
    if (has_evaluation()) eval_ = open_model_text(source, flags.eval, flags.split_on, log);
  }

  std::vector<Batch> calibration(int64_t samples) const override {
    return calibration_rows(calib_, samples, flags_.seq);
  }
  bool has_evaluation() const override { return !flags_.eval.empty(); }

  // Row by row under the model of a folder or run; the rows are the same for all.
  PtqFigures evaluate(const ModelSource& source, Backend& backend) const override {
    const int64_t seq = longest_, batch = flags_.batch;
    ModelSpec spec = source.spec;
    if (!source.run) spec.rope_seq = seq;
    const FunctionKey key{function::evaluate, {.batch = batch, .seq = seq}};
    const WeightReader weights(posix_files(), source.weights, spec, source.nonfinite);
    Inference model(spec, {"fp32", weights.inputs()}, std::span(&key, 1), *backend.device,
                    *backend.catalogue);
    model.load(weights);
    BoundPlan& run = model.function(key.name, key.size);
    const int64_t limit = flags_.eval_tokens > 0 ? flags_.eval_tokens : eval_.n_tokens();
    PtqFigures figures{.all = {{"nll", {}}}, .counted = "tokens", .has_perplexity = true};
    if (flags_.split_on.empty()) {
      figures.all[0].samples = row_nll(run, EvalWindows(eval_, seq, limit), batch);
      return figures;
    }
    auto documents =
        documents_of(eval_.slice(0, std::min(limit, eval_.n_tokens())), {.max_tokens = seq});
    std::erase_if(documents, [](const auto& document) { return document.size() < 2; });
    figures.all[0].samples = document_nll(run, documents, {.batch = batch, .seq = seq});
    return figures;
  }

 private:
  PtqDataFlags flags_;
  int64_t longest_;
  TokenStream calib_, eval_;
};

// Of a value a row.
SampleMetric metric_of(std::string name, const std::vector<double>& values, double factor = 1) {
  SampleMetric metric{std::move(name), {}};
  for (const double value : values) metric.samples.push_back({factor * value, 1});
  return metric;
}

class RowData : public PtqData {
 public:
  RowData(const ModelSource& source, const PtqDataFlags& flags, Log log)
      : flags_(flags), log_(std::move(log)) {
    const bool reads_text = model_def(source.spec.kind).reads_text;
    if (reads_text && source.tokenizer.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  "--tokenizer: expected a tokenizer's file, got none: '{}' does not say",
                  source.folder);
    }
    seq_ = reads_text ? flags.seq : 1;
    data_ = open_model_rows(
        posix_files(), {.source = source, .calib = flags.calib, .eval = flags.eval, .seq = seq_},
        log_);
  }

  std::vector<Batch> calibration(int64_t samples) const override {
    return calibration_rows(SampleEval(data_.train_rows, seq_, samples), samples);
  }
  bool has_evaluation() const override { return data_.val_rows != nullptr; }

  PtqFigures evaluate(const ModelSource& source, Backend& backend) const override {
    const int64_t n_all = data_.val_rows->n_samples();
    const SampleEval rows(data_.val_rows, seq_,
                          flags_.eval_rows > 0 ? std::min(flags_.eval_rows, n_all) : n_all);
    ModelSource exact = source;
    exact.recipe = "fp32";
    exact.stored = FrozenFormat::as_computed;
    exact.recipe_options = {};
    if (head_of(source.spec).head == ModelHead::classes) return classes(exact, rows, backend);
    const WeightReader weights(posix_files(), source.weights, source.spec, source.nonfinite);
    const FunctionKey key{function::evaluate, {.batch = flags_.batch, .seq = seq_}};
    Inference model(source.spec, precision_of("fp32", exact, weights), std::span(&key, 1),
                    *backend.device, *backend.catalogue);
    model.load(weights);
    return {.all = sample_metrics(model.function(key.name, key.size), rows, flags_.batch,
                                  loss_terms(source.spec))};
  }

 private:
  PtqFigures classes(const ModelSource& source, const EvalRows& rows, Backend& backend) const {
    const ClassScores scores = score_classes(
        source, rows, flags_.batch, {posix_files(), *backend.device, *backend.catalogue, log_});
    PtqFigures figures;
    figures.all.push_back(metric_of("cross_entropy", scores.log_likelihoods, -1));
    figures.all.push_back(metric_of("acc", scores.right));
    if (source.spec.classes > 5) figures.all.push_back(metric_of("top5", scores.right5));
    return figures;
  }

  PtqDataFlags flags_;
  Log log_;
  int64_t seq_ = 1;
  Dataset data_;
};

}  // namespace

std::unique_ptr<PtqData> open_ptq_data(const ModelSource& source, const PtqDataFlags& flags,
                                       const Log& log) {
  if (model_def(source.spec.kind).writes_text)
    return std::make_unique<TextData>(source, flags, log);
  return std::make_unique<RowData>(source, flags, log);
}

}  // namespace octet
