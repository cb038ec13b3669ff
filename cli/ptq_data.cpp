#include "cli/ptq_data.h"

#include <algorithm>
#include <utility>

#include "cli/backend.h"
#include "cli/calib_option.h"
#include "cli/row_figures.h"
#include "data/row_plan.h"
#include "infer/inference.h"
#include "ptq/ptq.h"
#include "train/model_rows.h"
#include "train/row_data.h"

namespace octet {
namespace {

constexpr int64_t kLongestRow = 2048;

// In fp32, whatever the recipe of a run.
ModelSource exact(ModelSource source) {
  source.recipe = "fp32";
  source.stored = FrozenFormat::as_computed;
  source.recipe_options = {};
  return source;
}

class TextData : public PtqData {
 public:
  TextData(const ModelSource& source, const PtqDataFlags& flags, const Log& log)
      : flags_(flags),
        longest_(std::min(source.seq, kLongestRow)),
        calib_(open_model_text(source, flags.calib, log, {.split_on = flags.split_on})) {
    if (!has_evaluation()) return;
    eval_ = open_model_text(source, flags.eval, log,
                            {.split_on = flags.split_on, .end = DocumentEnd::none});
    const int64_t n_all = eval_.n_tokens();
    limit_ = flags.eval_tokens > 0 ? std::min(flags.eval_tokens, n_all) : n_all;
    EvalAmount amount{.n = limit_, .n_all = n_all, .unit = "tokens"};
    if (!flags.split_on.empty()) {
      documents_ = documents_of(eval_.slice(0, limit_), {.max_tokens = longest_});
      amount.n = 0;
      for (const auto& document : documents_) amount.n += std::ssize(document);
      std::erase_if(documents_, [](const auto& document) { return document.size() < 2; });
    }
    if (!amount.is_all())
      log.warning(
          "--eval: {} are read{}", amount.text(),
          flags.split_on.empty() ? "" : fmt::format(", of a document the first {}", longest_));
  }

  std::vector<Batch> calibration(int64_t samples) const override {
    return calibration_rows(calib_, samples, flags_.seq);
  }
  bool has_evaluation() const override { return !flags_.eval.empty(); }

  // Row by row under the model of a folder or run; the rows are the same for all.
  PtqFigures evaluate(const ModelSource& source, Backend& backend) const override {
    const int64_t seq = longest_, batch = flags_.batch;
    ModelSource own = exact(source);
    if (!source.run) own.spec.rope_seq = seq;
    const FunctionKey key{function::evaluate, {.batch = batch, .seq = seq}};
    Inference model(own, std::span(&key, 1), text_machine(backend));
    BoundPlan& run = model.function(key.name, key.size);
    PtqFigures figures{.all = {{"nll", {}}}, .counted = "tokens", .has_perplexity = true};
    if (flags_.split_on.empty()) {
      figures.all[0].samples = row_nll(run, SampleEval(eval_, {.seq = seq}, limit_ + 1), batch);
      return figures;
    }
    figures.all[0].samples = document_nll(run, documents_, {.batch = batch, .seq = seq});
    return figures;
  }

 private:
  PtqDataFlags flags_;
  int64_t longest_, limit_ = 0;
  TokenStream calib_, eval_;
  std::vector<std::vector<int32_t>> documents_;  // of eval_
};

class RowData : public PtqData {
 public:
  RowData(const ModelSource& source, const PtqDataFlags& flags, Log log)
      : flags_(flags), log_(std::move(log)), images_(source.spec.images) {
    seq_ = encoder_row_length(source, flags.seq, flags.calib);
    data_ = open_model_rows(posix_files(),
                            {.source = source,
                             .calib = flags.calib,
                             .eval = flags.eval,
                             .seq = seq_,
                             .reads_negatives = false},
                            log_);
  }

  std::vector<Batch> calibration(int64_t samples) const override {
    return calibration_rows(SampleEval(data_.train_rows, {.seq = seq_}), samples);
  }
  bool has_evaluation() const override { return data_.val_rows != nullptr; }

  PtqFigures evaluate(const ModelSource& source, Backend& backend) const override {
    const SampleEval rows(first_rows(data_.val_rows, flags_.eval_rows), {.seq = seq_});
    ModelSource own = exact(source);
    own.spec.images = images_;  // of the rows, which a folder does not say
    RowFigures found = row_figures(own, rows, flags_.batch, text_machine(backend, log_));
    return {.all = std::move(found.all), .whole = std::move(found.whole)};
  }

 private:
  PtqDataFlags flags_;
  Log log_;
  int64_t images_ = 1, seq_ = 1;
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
