#include "cli/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>

#include "cli/eval_tasks.h"
#include "cli/page.h"
#include "cli/report_groups.h"
#include "cli/report_samples.h"
#include "train/plan_report.h"

namespace octet {
namespace {

// Values of a metric of all runs, so that a page of some stays within 300 KB; of one run at least.
constexpr size_t kMaxPageValues = 2100, kMinCurveValues = 180;
constexpr int kBandDigits = 4;
// Magnitudes beyond are drawn as this one, so that no range overflows.
constexpr double kMaxMagnitude = 1e250;

// A step without labels has neither a loss nor gradients.
std::optional<double> of_labels(const StepReport& step, float value) {
  return step.has_labels() ? std::optional<double>(value) : std::nullopt;
}

struct Metric {
  const char* name;
  int digits;
  std::optional<double> (*of)(const StepReport& step);  // nothing where it has no such value
};
constexpr Metric kMetrics[] = {
    {"loss", 6, [](const StepReport& s) { return of_labels(s, s.loss); }},
    {"val_loss", 6, [](const StepReport& s) { return s.val_loss; }},
    {"grad_norm", 4, [](const StepReport& s) { return of_labels(s, s.grad_norm); }},
    {"lr", 4, [](const StepReport& s) { return std::optional<double>(s.lr); }},
    {"tokens_per_s", 4, [](const StepReport& s) { return std::optional<double>(s.tokens_per_s); }},
    {"planned_bytes", 6, [](const StepReport& s) { return std::optional<double>(s.mem_bytes); }},
};

// Nothing is so small that a range of it has no ticks.
double rounded(double value, int digits) {
  return std::abs(value) < 1 / kMaxMagnitude
             ? 0
             : std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

// Several values share a point, with its least and largest value, in curves with more than fit.
size_t values_per_point(size_t n_values, size_t n_runs) {
  const size_t n_fitting = std::max(kMinCurveValues, kMaxPageValues / n_runs);
  const size_t n_points = n_values <= n_fitting ? n_fitting : n_fitting * 2 / 5;
  return std::max<size_t>(1, (n_values + n_points - 1) / n_points);
}

using Value = std::pair<int64_t, double>;  // step, value

// The x are left out where they are `steps`; y of one value throughout is a number.
OrderedJson curve_json(const std::vector<Value>& values, int digits, size_t n_runs,
                       const OrderedJson& steps) {
  OrderedJson x = OrderedJson::array(), y = x, low = x, high = x, gaps = x;
  const size_t per_point = values_per_point(values.size(), n_runs);
  for (size_t begin = 0; begin < values.size(); begin += per_point) {
    double n = 0, at = 0, mean = 0, least = kMaxMagnitude, most = -kMaxMagnitude;
    std::optional<int64_t> gap;  // one of a point says enough
    for (size_t i = begin; i < std::min(begin + per_point, values.size()); ++i) {
      const auto [step, value] = values[i];
      if (!std::isfinite(value)) {
        if (!gap) gaps.push_back(*(gap = step));
        continue;
      }
      const double drawn = std::clamp(value, -kMaxMagnitude, kMaxMagnitude);
      ++n;
      at += (static_cast<double>(step) - at) / n;
      mean += (drawn - mean) / n;
      least = std::min(least, drawn);
      most = std::max(most, drawn);
    }
    if (n == 0) at = static_cast<double>(*gap), mean = least = most = NAN;
    x.push_back(std::llround(at));
    y.push_back(rounded(mean, digits));
    low.push_back(rounded(least, std::min(digits, kBandDigits)));
    high.push_back(rounded(most, std::min(digits, kBandDigits)));
  }
  const bool is_constant =
      y.size() > 1 && std::ranges::all_of(values, [&](const Value& value) {
        return std::isfinite(value.second) && value.second == values.front().second;
      });
  OrderedJson curve;
  if (x != steps) curve["x"] = x;
  curve["y"] = is_constant ? y.front() : y;
  if (!gaps.empty()) curve["gaps"] = gaps;
  if (per_point > 1 && !is_constant) curve.update({{"low", low}, {"high", high}});
  return curve;
}

// The x of curves, steps, also in tokens and in seconds.
OrderedJson axes_json(const std::vector<StepReport>& steps, size_t n_runs) {
  OrderedJson step = OrderedJson::array(), tokens = step, seconds = step;
  const size_t per_point = values_per_point(steps.size(), n_runs);
  double s = 0;
  for (size_t begin = 0; begin < steps.size(); begin += per_point) {
    double n = 0, mean_step = 0, mean_tokens = 0, mean_s = 0;
    for (size_t i = begin; i < std::min(begin + per_point, steps.size()); ++i) {
      if (std::isfinite(steps[i].time_ms)) s += std::max(0.0, steps[i].time_ms / 1000);
      ++n;
      mean_step += (static_cast<double>(steps[i].step) - mean_step) / n;
      mean_tokens += (static_cast<double>(steps[i].tokens) - mean_tokens) / n;
      mean_s += (s - mean_s) / n;
    }
    step.push_back(std::llround(mean_step));
    tokens.push_back(std::llround(mean_tokens));
    seconds.push_back(rounded(mean_s, 5));
  }
  return {{"step", step}, {"tokens", tokens}, {"seconds", seconds}};
}

OrderedJson heat_json(const std::vector<EdgeSample>& samples) {
  std::map<int64_t, std::map<int, const EdgeStatistics*>> worst;  // by step and layer
  for (const EdgeSample& sample : samples) {
    const EdgeStatistics*& edge = worst[sample.step][sample.edge.tag.layer];
    if (edge == nullptr || is_worse(sample.edge, *edge)) edge = &sample.edge;
  }
  OrderedJson heat = OrderedJson::array();
  const size_t every = (worst.size() + kMaxHeatSteps - 1) / kMaxHeatSteps;
  for (size_t left = worst.size(); const auto& [step, layers] : worst) {
    if (--left % every != 0) continue;
    for (const auto& [layer, edge] : layers) {
      heat.push_back({{"step", step},
                      {"layer", layer},
                      {"edge", edge->edge},
                      {"dtype", dtype_name(edge->dtype)},
                      {"rescale", edge->rescale()},
                      {"zeros", edge->zeros},
                      {"saturated", edge->saturated}});
    }
  }
  return heat;
}

// Curves and last values of what evaluations tell beside the loss.
void add_figures(const RunData& run, const std::vector<std::string>& figures, size_t n_runs,
                 OrderedJson& json) {
  constexpr int kFigureDigits = 6;
  for (const std::string& name : figures) {
    std::vector<Value> values;
    for (const StepReport& step : run.steps)
      if (const auto value = figure_of(step, name)) values.emplace_back(step.step, *value);
    json["curves"]["val_" + name] = curve_json(values, kFigureDigits, n_runs, json["axes"]["step"]);
    if (const auto last = last_figure(run, name)) json["figures"][name] = *last;
  }
}

OrderedJson run_json(const RunData& run, const std::string& label, size_t n_runs) {
  const RunSummary s = summarize(run);
  OrderedJson json = {{"name", run.name},
                      {"label", label},
                      {"recipe", run.recipe},
                      {"seed", run.seed()},
                      {"steps", s.n_steps},
                      {"steps_logged", run.steps.size()},
                      {"train_loss", s.train_loss},
                      {"val_loss", s.val_loss},
                      {"best_val_loss", s.best_val_loss},
                      {"best_val_step", s.best_val_step},
                      {"unit", s.unit},
                      {"tokens_per_s", s.tokens_per_s},
                      {"planned_bytes", s.mem_bytes},
                      {"skipped", s.n_skipped},
                      {"spikes", run.n_spikes},
                      {"heat", heat_json(run.edges)}};
  if (s.tokens_per_joule) json["tokens_per_joule"] = *s.tokens_per_joule;
  if (run.state_bytes) json["state_bytes"] = *run.state_bytes;
  if (run.rescales) json["rescales"] = rescales_json(*run.rescales);
  json["axes"] = axes_json(run.steps, n_runs);
  for (const Metric& metric : kMetrics) {
    std::vector<Value> values;
    for (const StepReport& step : run.steps)
      if (const auto value = metric.of(step)) values.emplace_back(step.step, *value);
    json["curves"][metric.name] = curve_json(values, metric.digits, n_runs, json["axes"]["step"]);
  }
  return json;
}

Table differences_table(const std::vector<RunData>& runs, const std::vector<std::string>& labels) {
  Table table{{"key"}, {}};
  table.columns.insert(table.columns.end(), labels.begin(), labels.end());
  for (const ConfigDifference& line : config_differences(runs)) {
    table.rows.push_back({line.key});
    table.rows.back().insert(table.rows.back().end(), line.values.begin(), line.values.end());
  }
  return table;
}

Table figures_table(const std::vector<RunData>& runs, const std::vector<std::string>& labels) {
  const std::vector<std::string> figures = figure_names(runs);
  Table table{{"run"}, {}};
  table.columns.insert(table.columns.end(), figures.begin(), figures.end());
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::string> row = {labels[i]};
    for (const std::string& name : figures) {
      const auto value = last_figure(runs[i], name);
      row.push_back(value ? loss_number(*value) : "");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// All but the samples.
OrderedJson data_json(const std::vector<RunData>& runs) {
  const RunGroups groups = group_runs(runs);
  OrderedJson json = {{"runs", OrderedJson::array()}, {"groups", OrderedJson::array()}};
  const std::vector<std::string> figures = figure_names(runs);
  if (!figures.empty()) json["figures"] = figures;
  std::vector<OrderedJson> evaluations;
  std::vector<size_t> owners;
  for (size_t i = 0; i < runs.size(); ++i) {
    owners.insert(owners.end(), runs[i].evaluations.size(), i);
    evaluations.insert(evaluations.end(), runs[i].evaluations.begin(), runs[i].evaluations.end());
    json["runs"].push_back(run_json(runs[i], groups.labels[i], runs.size()));
    add_figures(runs[i], figures, runs.size(), json["runs"].back());
  }
  for (const RunGroup& group : groups.groups)
    json["groups"].push_back({{"label", group.label}, {"runs", group.runs}});
  json["baseline"] = groups.baseline;
  const Table table = evaluation_table(evaluations);
  json["evaluations"] = {{"columns", table.columns}, {"rows", table.rows}, {"runs", owners}};
  json["differences"] = OrderedJson::array();
  for (const ConfigDifference& line : config_differences(runs))
    json["differences"].push_back({{"key", line.key}, {"values", line.values}});
  return json;
}

// Samples that a page of these data has room for; its tables repeat a part of the data.
ShownSamples fitting_samples(const std::vector<RunData>& runs, const OrderedJson& json) {
  constexpr size_t kTableBytes = 1000;  // of results, a run
  static const size_t frame = page_text("", OrderedJson(), {}).size();
  const size_t taken = frame + page_json(json).size() + kTableBytes * (runs.size() + 1) +
                       page_json(json.at("evaluations")).size() +
                       2 * page_json(json.at("differences")).size();
  return last_samples(runs, kMaxPageBytes - std::min(kMaxPageBytes, taken));
}

}  // namespace

OrderedJson report_json(const std::vector<RunData>& runs) {
  OrderedJson json = data_json(runs);
  json["samples"] = samples_json(fitting_samples(runs, json));
  return json;
}

std::string report_page(const std::vector<RunData>& runs, const Table& results) {
  const RunGroups groups = group_runs(runs);
  OrderedJson json = data_json(runs);
  std::vector<PageTable> tables = {{"Results", results}};
  if (json.contains("figures"))
    tables.push_back({"Validation figures", figures_table(runs, groups.labels)});
  std::vector<OrderedJson> evaluations;
  std::vector<std::string> owners;
  for (const RunData& run : runs) {
    owners.insert(owners.end(), run.evaluations.size(), run.name);
    evaluations.insert(evaluations.end(), run.evaluations.begin(), run.evaluations.end());
  }
  Table evaluated = evaluation_table(evaluations);
  evaluated.columns.insert(evaluated.columns.begin(), "run");
  for (size_t i = 0; i < owners.size(); ++i)
    evaluated.rows[i].insert(evaluated.rows[i].begin(), owners[i]);
  if (!evaluations.empty()) tables.push_back({"Evaluations", evaluated});
  if (runs.size() > 1)
    tables.push_back({"Where the configurations differ", differences_table(runs, groups.labels)});
  const ShownSamples samples = fitting_samples(runs, json);
  json["samples"] = samples_json(samples);
  if (samples.n_shown > 0) tables.push_back({samples_title(samples), samples_table(runs, samples)});
  return page_text("Octet report", json, tables);
}

}  // namespace octet
