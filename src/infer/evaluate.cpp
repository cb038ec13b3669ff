#include "infer/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "infer/batch_inputs.h"
#include "infer/metrics.h"

namespace octet {
namespace {

std::vector<float> read_items(const BoundPlan& evaluate, std::string_view name) {
  const Graph& graph = evaluate.plan().graph;
  const TensorType& type = graph.type(graph.find_output(name)->value);
  CHECK(type.dtype == Dtype::f32);
  std::vector<float> values(static_cast<size_t>(type.n_elems()));
  evaluate.read_output(name, values.data(), type.n_bytes());
  return values;
}

float inverse(int64_t n) {
  return n > 0 ? 1.0f / static_cast<float>(n) : 0.0f;
}

std::vector<float> run_nll(BoundPlan& evaluate, const Batch& batch) {
  upload(evaluate, batch, {scalar_input("inv_n", inverse(batch.n_labels()))});
  evaluate.run();
  return read_items(evaluate, "nll");
}

// A metric of a loss, item by item.
struct ItemMetric {
  std::string name;
  std::vector<float> values;
  std::vector<bool> counts;
  std::vector<float> targets = {};  // where it is compared with these
  PredictedNumber number(size_t i) const { return {values[i], counts[i] ? targets[i] : NAN}; }
};

std::vector<ItemMetric> run_metrics(BoundPlan& evaluate, Batch& batch,
                                    std::span<const LossTerm> terms) {
  std::vector<InputBytes> scalars;
  for (const LossTerm& term : terms) batch.rows_per_sample = term.rows_per_sample;
  for (const LossTerm& term : terms)
    scalars.push_back(scalar_input(term.inv_n, inverse(batch.n_items(term.counted))));
  upload(evaluate, batch, scalars);
  evaluate.run();
  std::vector<ItemMetric> metrics;
  for (const LossTerm& term : terms) {
    for (const std::string& name : term.metrics) {
      metrics.push_back({name, read_items(evaluate, name), batch.counts(term.counted)});
      CHECK(metrics.back().values.size() == metrics.back().counts.size());
      if (name == term.compared) metrics.back().targets = batch.reals(term.counted);
    }
  }
  return metrics;
}

NllSum sum_rows(const Batch& batch, const std::vector<float>& nll, int64_t first, int64_t last) {
  const std::vector<int32_t>& labels = batch.ints("labels");
  NllSum total;
  for (int64_t i = first * batch.seq; i < last * batch.seq; ++i) {
    if (labels[static_cast<size_t>(i)] == kIgnoredLabel) continue;
    total.sum += static_cast<double>(nll[static_cast<size_t>(i)]);
    ++total.n_tokens;
  }
  return total;
}

constexpr double kNoError = std::numeric_limits<double>::quiet_NaN();

// A mean of all tokens as a ratio of sums over rows, and its error (delta method); NaN of one row.
std::pair<double, double> mean_and_error(std::span<const NllSum> rows) {
  NllSum total;
  for (const NllSum& row : rows) total.add(row);
  const double mean = total.mean(), n_rows = static_cast<double>(rows.size());
  double squares = 0;
  for (const NllSum& row : rows) {
    const double rest = row.sum - mean * static_cast<double>(row.n_tokens);
    squares += rest * rest;
  }
  if (rows.size() < 2 || total.n_tokens == 0) return {mean, kNoError};
  return {mean, std::sqrt(squares * n_rows / (n_rows - 1)) / static_cast<double>(total.n_tokens)};
}

void fill_document(std::span<const int32_t> document, int64_t row, Batch& batch) {
  const auto n = std::min(document.size(), static_cast<size_t>(batch.seq));
  const auto at = static_cast<size_t>(row * batch.seq);
  std::copy_n(document.begin(), n, batch.ints("tokens").begin() + static_cast<int64_t>(at));
  for (size_t i = 0; i + 1 < n; ++i) batch.ints("labels")[at + i] = document[i + 1];
  batch.lengths[static_cast<size_t>(row)] = static_cast<int64_t>(n);
}

}  // namespace

Figures compared_figures(const LossTerm& term, std::span<const PredictedNumber> numbers) {
  if (term.n_labels > 0) {
    std::vector<float> logits, targets;
    for (const PredictedNumber& one : numbers) {
      logits.push_back(one.predicted);
      targets.push_back(one.target);
    }
    const LabelSetScore score = score_label_sets(logits, targets, term.n_labels);
    return {{"subset_accuracy", score.subset_accuracy}, {"micro_f1", score.micro_f1}};
  }
  std::vector<double> predicted, targets;
  for (const PredictedNumber& one : numbers) {
    if (std::isnan(one.target)) continue;
    predicted.push_back(static_cast<double>(one.predicted));
    targets.push_back(static_cast<double>(one.target));
  }
  return {{"spearman", spearman(predicted, targets).value_or(NAN)}};
}

std::optional<double> RunEvaluation::loss(std::span<const LossTerm> terms) const {
  double total = 0;
  int64_t n_items = 0;
  size_t at = 0;
  for (const LossTerm& term : terms) {
    total += term.weight * metrics[at].sum.mean();
    n_items += metrics[at].sum.n_tokens;
    at += term.metrics.size();
  }
  return n_items > 0 ? std::optional(total) : std::nullopt;
}

Figures RunEvaluation::figures(std::span<const LossTerm> terms) const {
  // "A.metric" of several losses becomes "A.other".
  const auto renamed = [](const std::string& name, std::string_view other) {
    return name.substr(0, name.rfind('.') + 1).append(other);
  };
  Figures figures;
  size_t at = 0;
  for (const LossTerm& term : terms) {
    for (size_t i = 1; i < term.metrics.size(); ++i) {
      const MetricSum& metric = metrics[at + i];
      if (metric.sum.n_tokens == 0) continue;
      if (metric.name != term.compared) {
        const bool is_share = metric.name.ends_with("correct");
        figures.emplace_back(is_share ? renamed(metric.name, "accuracy") : metric.name,
                             metric.sum.mean());
        continue;
      }
      for (const auto& [name, value] : compared_figures(term, metric.numbers)) {
        if (!std::isnan(value)) figures.emplace_back(renamed(metric.name, name), value);
      }
    }
    at += term.metrics.size();
  }
  return figures;
}

RunEvaluation evaluate_batch(BoundPlan& evaluate, Batch batch, std::span<const LossTerm> terms) {
  RunEvaluation result;
  for (const ItemMetric& metric : run_metrics(evaluate, batch, terms)) {
    MetricSum& sum = result.metrics.emplace_back(MetricSum{.name = metric.name});
    for (size_t i = 0; i < metric.values.size(); ++i) {
      if (metric.counts[i]) sum.sum.add({static_cast<double>(metric.values[i]), 1});
    }
    for (size_t i = 0; i < metric.targets.size(); ++i) sum.numbers.push_back(metric.number(i));
  }
  return result;
}

std::vector<SampleMetric> sample_metrics(BoundPlan& evaluate, const EvalRows& rows, int64_t batch,
                                         std::span<const LossTerm> terms) {
  std::vector<SampleMetric> result;
  for (int64_t first = 0; first < rows.n_rows(); first += batch) {
    Batch part = rows.at(first, batch);
    const std::vector<ItemMetric> metrics = run_metrics(evaluate, part, terms);
    const int64_t n_held = std::min(batch, rows.n_rows() - first) / part.rows_per_sample;
    if (result.empty()) {
      for (const ItemMetric& metric : metrics) result.push_back({metric.name, {}});
    }
    for (size_t m = 0; m < metrics.size(); ++m) {
      const auto n_items = std::ssize(metrics[m].values) * part.rows_per_sample / batch;
      for (int64_t sample = 0; sample < n_held; ++sample) {
        NllSum& sum = result[m].samples.emplace_back();
        for (int64_t i = sample * n_items; i < (sample + 1) * n_items; ++i) {
          if (!metrics[m].counts[static_cast<size_t>(i)]) continue;
          sum.add({static_cast<double>(metrics[m].values[static_cast<size_t>(i)]), 1});
          if (!metrics[m].targets.empty())
            result[m].numbers.push_back(metrics[m].number(static_cast<size_t>(i)));
        }
      }
    }
  }
  return result;
}

NllSum batch_nll(BoundPlan& evaluate, const Batch& batch) {
  return sum_rows(batch, run_nll(evaluate, batch), 0, batch.batch);
}

std::vector<NllSum> row_nll(BoundPlan& evaluate, const EvalRows& rows, int64_t batch) {
  return row_nll([&](int64_t) -> BoundPlan& { return evaluate; }, rows, batch);
}

std::vector<NllSum> row_nll(const EvaluateOfLength& evaluate, const EvalRows& rows, int64_t batch) {
  std::vector<NllSum> results;
  for (int64_t first = 0; first < rows.n_rows(); first += batch) {
    const Batch part = rows.at(first, batch);
    const std::vector<float> nll = run_nll(evaluate(part.seq), part);
    for (int64_t row = 0; row < batch; ++row) {
      const NllSum sum = sum_rows(part, nll, row, row + 1);
      if (sum.n_tokens > 0) results.push_back(sum);
    }
  }
  return results;
}

PairedNll paired_nll(std::span<const NllSum> before, std::span<const NllSum> after) {
  CHECK(before.size() == after.size());
  std::vector<NllSum> difference(before.begin(), before.end());
  for (size_t i = 0; i < difference.size(); ++i) {
    CHECK(before[i].n_tokens == after[i].n_tokens);
    difference[i].sum = after[i].sum - before[i].sum;
  }
  PairedNll result;
  std::tie(result.before, result.before_error) = mean_and_error(before);
  std::tie(result.after, result.after_error) = mean_and_error(after);
  std::tie(result.difference, result.difference_error) = mean_and_error(difference);
  return result;
}

std::vector<std::vector<int32_t>> documents_of(const TokenStream& stream,
                                               const DocumentLimits& limits) {
  std::vector<std::vector<int32_t>> documents;
  for_each_token(stream, [&](int64_t, int32_t id, uint8_t flags) {
    if ((flags & kDocumentStart) != 0 || documents.empty()) {
      const auto n_documents = std::ssize(documents);
      if (limits.max_documents > 0 && n_documents == limits.max_documents) return false;
      documents.emplace_back();
    }
    const auto length = static_cast<int64_t>(documents.back().size());
    if (limits.max_tokens == 0 || length < limits.max_tokens) documents.back().push_back(id);
    return true;
  });
  return documents;
}

std::vector<NllSum> document_nll(BoundPlan& evaluate,
                                 std::span<const std::vector<int32_t>> documents,
                                 const DocumentBatch& size) {
  std::vector<NllSum> results;
  for (size_t first = 0; first < documents.size(); first += static_cast<size_t>(size.batch)) {
    const auto n = std::min<int64_t>(size.batch, static_cast<int64_t>(documents.size() - first));
    Batch batch = empty_batch(size.batch, size.seq);
    for (int64_t row = 0; row < size.batch; ++row) {
      fill_document(documents[first + static_cast<size_t>(row % n)], row, batch);
      if (row >= n) mask_row(batch, row);
    }
    const std::vector<float> nll = run_nll(evaluate, batch);
    for (int64_t row = 0; row < n; ++row) results.push_back(sum_rows(batch, nll, row, row + 1));
  }
  return results;
}

}  // namespace octet
