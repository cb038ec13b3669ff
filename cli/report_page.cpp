#include "cli/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>

#include "cli/eval_tasks.h"
#include "cli/page.h"

namespace octet {
namespace {

// Magnitudes beyond are drawn as this one, so that no range overflows.
constexpr double kMaxMagnitude = 1e250;

// A step without labels has neither a loss nor gradients.
std::optional<double> of_labels(const StepReport& step, float value) {
  return step.has_labels() ? std::optional<double>(value) : std::nullopt;
}

struct Metric {
  const char* name;
  std::optional<double> (*of)(const StepReport& step);  // nothing where it has no such value
};
constexpr Metric kMetrics[] = {
    {"loss", [](const StepReport& s) { return of_labels(s, s.loss); }},
    {"val_loss", [](const StepReport& s) { return s.val_loss; }},
    {"grad_norm", [](const StepReport& s) { return of_labels(s, s.grad_norm); }},
    {"lr", [](const StepReport& s) { return std::optional<double>(s.lr); }},
    {"tokens_per_s", [](const StepReport& s) { return std::optional<double>(s.tokens_per_s); }},
    {"mem_bytes", [](const StepReport& s) { return std::optional<double>(s.mem_bytes); }},
};

// Nothing is so small that a range of it has no ticks.
double six_digits(double value) {
  return std::abs(value) < 1 / kMaxMagnitude
             ? 0
             : std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

OrderedJson curve_json(const std::vector<StepReport>& steps, const Metric& metric) {
  std::vector<std::pair<int64_t, double>> values;
  for (const StepReport& step : steps) {
    if (const auto value = metric.of(step)) values.emplace_back(step.step, *value);
  }
  OrderedJson x = OrderedJson::array(), y = x, low = x, high = x, gaps = x;
  const size_t per_point = (values.size() + kMaxCurvePoints - 1) / kMaxCurvePoints;
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
    y.push_back(six_digits(mean));
    low.push_back(six_digits(least));
    high.push_back(six_digits(most));
  }
  OrderedJson curve = {{"x", x}, {"y", y}, {"gaps", gaps}};
  if (per_point > 1) curve.update({{"low", low}, {"high", high}});
  return curve;
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

OrderedJson run_json(const RunData& run) {
  const RunSummary s = summarize(run);
  OrderedJson json = {{"name", run.name},
                      {"recipe", run.recipe},
                      {"steps", s.n_steps},
                      {"steps_logged", run.steps.size()},
                      {"train_loss", s.train_loss},
                      {"val_loss", s.val_loss},
                      {"best_val_loss", s.best_val_loss},
                      {"best_val_step", s.best_val_step},
                      {"tokens_per_s", s.tokens_per_s},
                      {"mem_bytes", s.mem_bytes},
                      {"skipped", s.n_skipped},
                      {"spikes", run.n_spikes},
                      {"heat", heat_json(run.edges)}};
  if (run.state_bytes) json["state_bytes"] = *run.state_bytes;
  for (const Metric& metric : kMetrics) json["curves"][metric.name] = curve_json(run.steps, metric);
  return json;
}

}  // namespace

std::string report_page(const std::vector<RunData>& runs) {
  OrderedJson json = {{"runs", OrderedJson::array()}, {"differences", OrderedJson::array()}};
  std::vector<OrderedJson> evaluations;
  std::vector<size_t> owners;
  for (const RunData& run : runs) {
    owners.insert(owners.end(), run.evaluations.size(), json["runs"].size());
    evaluations.insert(evaluations.end(), run.evaluations.begin(), run.evaluations.end());
    json["runs"].push_back(run_json(run));
  }
  const Table table = evaluation_table(evaluations);
  json["evaluations"] = {{"columns", table.columns}, {"rows", table.rows}, {"runs", owners}};
  for (const ConfigDifference& line : config_differences(runs))
    json["differences"].push_back({{"key", line.key}, {"values", line.values}});
  return page_text("Octet report", json);
}

}  // namespace octet
