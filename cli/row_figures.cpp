#include "cli/row_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/eval_tasks.h"
#include "data/row_plan.h"
#include "data/row_source.h"
#include "infer/class_scores.h"
#include "infer/inference.h"
#include "infer/metrics.h"
#include "infer/model_spec.h"
#include "infer/picture_prompt.h"
#include "infer/sentence_folder.h"
#include "infer/tasks/evaluations.h"
#include "train/model_rows.h"
#include "train/row_data.h"

namespace octet {
namespace {

constexpr int64_t kLongestText = 512;

// Metric of a value a row.
SampleMetric metric_of(std::string name, const std::vector<double>& values, double factor = 1) {
  SampleMetric metric{std::move(name), {}};
  for (const double value : values) metric.samples.push_back({factor * value, 1});
  return metric;
}

RowFigures class_figures(const ModelSource& source, const EvalRows& rows, int64_t batch,
                         const TextMachine& machine) {
  const ClassScores scores = score_classes(source, rows, batch, machine);
  RowFigures figures;
  figures.all.push_back(metric_of("cross_entropy", scores.log_likelihoods, -1));
  figures.all.push_back(metric_of("acc", scores.right));
  if (source.spec.classes > 5) figures.all.push_back(metric_of("top5", scores.right5));
  if (source.spec.classes == 2)
    figures.whole.emplace_back("f1", f1(scores.labels, scores.predicted));
  figures.whole.emplace_back("matthews", matthews_correlation(scores.labels, scores.predicted));
  return figures;
}

// A line of the table: figures of one recipe, and how far they are from the first one's.
OrderedJson line_of(const std::string& recipe, const RowFigures& figures, const RowFigures& first) {
  const bool is_first = &figures == &first;
  int64_t n_labels = 0;
  for (const NllSum& sample : figures.all.front().samples) n_labels += sample.n_tokens;
  OrderedJson line = {
      {"recipe", recipe}, {"rows", figures.all.front().samples.size()}, {"labels", n_labels}};
  for (size_t i = 0; i < figures.all.size(); ++i) {
    const SampleMetric& metric = figures.all[i];
    const PairedNll paired = paired_nll(first.all[i].samples, metric.samples);
    line[metric.name] = paired.after;
    line[metric.name + "_se"] = paired.after_error;
    if (is_first) continue;
    line[metric.name + "_difference"] = paired.difference;
    line[metric.name + "_difference_se"] = paired.difference_error;
  }
  for (const auto& [name, value] : figures.whole) line[name] = value;
  return line;
}

// The last line has every column.
Table table_of(const std::vector<OrderedJson>& lines) {
  Table table;
  for (const auto& [column, value] : lines.back().items()) table.columns.push_back(column);
  for (const OrderedJson& line : lines) {
    std::vector<std::string>& cells = table.rows.emplace_back();
    for (const std::string& column : table.columns) {
      const bool is_text = line.contains(column) && line[column].is_string();
      cells.push_back(!line.contains(column)             ? ""
                      : is_text                          ? line[column].get<std::string>()
                      : line[column].is_number_integer() ? line[column].dump()
                      // The standard error of one row.
                      : std::isnan(line[column].get<double>())
                          ? "-"
                          : fmt::format("{:.6f}", line[column].get<double>()));
    }
  }
  return table;
}

}  // namespace

RowFigures row_figures(const ModelSource& source, const EvalRows& rows, int64_t batch,
                       const TextMachine& machine) {
  const bool has_heads = !model_def(source.spec.kind).heads.empty();
  if (has_heads && head_of(source.spec).head == ModelHead::classes)
    return class_figures(source, rows, batch, machine);
  ModelSource trained = source;
  trained.spec = with_loss(posix_files(), source);
  const Batch first = rows.at(0, batch);
  const std::vector<WeightedLoss> losses = row_losses(trained.spec, first.rows_per_sample);
  trained.negatives = losses.front().options.negatives;
  const FunctionKey key{function::evaluate, {.batch = batch, .seq = first.seq}};
  Inference model(trained, std::span(&key, 1), machine);
  const std::vector<LossTerm> terms = loss_terms(trained.spec, losses);
  RowFigures figures;
  for (SampleMetric& metric :
       sample_metrics(model.function(key.name, key.size), rows, batch, terms)) {
    if (metric.numbers.empty()) {
      figures.all.push_back(std::move(metric));
    } else {
      for (auto& figure : compared_figures(terms.front(), metric.numbers))
        figures.whole.push_back(std::move(figure));
    }
  }
  return figures;
}

int64_t encoder_row_length(const ModelSource& source, int64_t wanted,
                           const std::vector<std::string>& files) {
  if (!model_def(source.spec.kind).reads_text) return 1;
  if (are_arrays(files)) return wanted > 0 ? wanted : source.seq;
  if (source.tokenizer.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--tokenizer: expected a tokenizer's file, got none: '{}' does not say",
                source.folder);
  }
  if (wanted > 0) return wanted;
  const int64_t most = std::min(source.seq, kLongestText + picture_tokens(source.spec));
  const bool embeds = with_loss(posix_files(), source).head == ModelHead::embeddings;
  const int64_t own =
      embeds && !source.run ? max_tokens_of_folder(posix_files(), source.folder, most) : 0;
  return own > 0 ? own : most;
}

namespace {

// Samples are whole: pairs of texts, say, or those with their negatives.
int64_t batch_of(const EvalRowsCall& call, const EvalRows& rows) {
  if (call.batch == 0) return rows.whole_samples(call.default_batch);
  if (call.batch == rows.whole_samples(call.batch)) return call.batch;
  throw Error(ErrorCode::invalid_argument,
              "--batch: expected a multiple of {}, the rows of a sample, got {}",
              rows.rows_per_sample(), call.batch);
}

}  // namespace

void run_eval_rows(const EvalRowsCall& call, const std::vector<ModelSource>& sources,
                   const GlobalOptions& options) {
  const ModelSource& source = sources.front();
  const bool is_own = call.files.empty() && source.run;
  const std::vector<std::string> files = is_own ? source.run->data.val : call.files;
  if (files.empty() && !is_own) {
    throw Error(ErrorCode::invalid_argument,
                "--data: expected files of the kind that the model trains on, got none");
  }
  const Log log = make_log(options);
  const int64_t seq = encoder_row_length(source, call.seq, files);
  const auto all =
      files.empty()
          ? held_out_rows(posix_files(), source, seq, log)
          : open_model_rows(posix_files(),
                            {.source = source, .calib = files, .seq = seq, .stride = call.stride},
                            log)
                .train_rows;
  const int64_t own_limit = is_own ? source.run->train.eval_rows : 0;
  const auto read = first_rows(all, call.limit > 0 ? call.limit : own_limit);
  const EvalAmount amount{.n = read->n_samples(), .n_all = all->n_samples()};
  if (!amount.is_all()) log.warning("[eval] {} are read", amount.text());
  const SampleEval rows(read, {.seq = seq});
  const int64_t batch = batch_of(call, rows);
  Backend backend = open_backend(options, {.same_rows = true});
  std::vector<RowFigures> figures;
  std::vector<OrderedJson> lines;
  figures.reserve(sources.size());
  for (const ModelSource& one : sources) {
    warn_of_measured_batches(log, one.recipe, batch);
    figures.push_back(row_figures(one, rows, batch, text_machine(backend, log)));
    lines.push_back(line_of(one.recipe, figures.back(), figures.front()));
    lines.back()["read"] = amount.text();
    if (const auto step = checkpoint_step(source)) lines.back()["step"] = *step;
  }
  print_table(options, table_of(lines));
  for (const OrderedJson& line : lines) {
    const std::string& name = figures.front().all.front().name;
    if (std::isfinite(line.at(name).get<double>())) continue;
    throw Error(ErrorCode::numerics, "[eval] expected a finite {}, got none in {}", name,
                line.at("recipe").get<std::string>());
  }
}

}  // namespace octet
