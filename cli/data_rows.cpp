#include "cli/data_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/row_plan.h"
#include "train/row_data.h"

namespace octet {
namespace {

using List = OrderedJson;

constexpr size_t kMaxShown = 16;  // integers of an array

std::string type_text(const InputSpec& input) {
  const std::string items =
      input.inner.empty() ? "" : fmt::format(" of {}", fmt::join(input.inner, " x "));
  const bool is_number = input.type == HostType::real;
  return fmt::format("{} a {}{}{}", is_number ? "numbers" : "integers", enum_name(input.per), items,
                     input.bound > 0 ? fmt::format(", below {}", input.bound) : "");
}

// The first integers, or mean and range of real numbers.
std::string values_text(const List& values) {
  if (values.is_object()) {
    return fmt::format("mean {:.4g}, {:.4g} to {:.4g}", values.at("mean").get<double>(),
                       values.at("least").get<double>(), values.at("most").get<double>());
  }
  auto shown = values.get<std::vector<int64_t>>();
  shown.resize(std::min(kMaxShown, shown.size()));
  return fmt::format("{}{}", fmt::join(shown, " "), shown.size() < values.size() ? " ..." : "");
}

List values_json(const HostTensor& tensor) {
  if (const auto* ints = std::get_if<std::vector<int32_t>>(&tensor.values)) return *ints;
  const auto& reals = std::get<std::vector<float>>(tensor.values);
  const auto [least, most] = std::ranges::minmax(reals);
  const double sum = std::accumulate(reals.begin(), reals.end(), 0.0);
  return {{"mean", sum / static_cast<double>(reals.size())}, {"least", least}, {"most", most}};
}

// Sizes of batches, of rows of two texts.
void add_buckets(const RowPlan& plan, List& json, std::string& text) {
  if (plan.sizes().empty()) return;
  const PackReport report = plan.report();
  text += fmt::format("buckets        {} an epoch: {} tokens, {:.1f} % padding\n",
                      plan.sizes_text(), report.n_padded_tokens, 100 * report.padding_share());
  json["buckets"] = List::array();
  for (const RowSize& size : plan.sizes())
    json["buckets"].push_back({{"rows", size.rows}, {"seq", size.seq}, {"source", size.source}});
  json["padding_share"] = report.padding_share();
}

}  // namespace

void write_row_data(const Dataset& data, const RunConfig& config, int64_t n,
                    const GlobalOptions& options) {
  const RowSource& rows = *data.train_rows;
  const int64_t n_val = data.val_rows == nullptr ? 0 : data.val_rows->n_samples();
  const int64_t n_rows = rows.rows_per_sample();
  const SampleEval samples(slice_rows(data.train_rows, 0, std::min(n, rows.n_samples())),
                           {.seq = config.model.seq});
  List json = {{"samples", rows.n_samples()}, {"validation_samples", n_val},
               {"rows_per_sample", n_rows},   {"sample_bytes", rows.sample_bytes()},
               {"inputs", List::array()},     {"first", List::array()}};
  std::string text = fmt::format("samples        {} training, {} validation, {} bytes each\n",
                                 rows.n_samples(), n_val, rows.sample_bytes());
  for (const InputSpec& input : rows.inputs()) {
    text += fmt::format("{:<14} {}\n", input.name, type_text(input));
    json["inputs"].push_back({{"name", input.name},
                              {"per", enum_name(input.per)},
                              {"inner", input.inner},
                              {"bound", input.bound}});
  }
  add_buckets(make_loader(data, config).plan(), json, text);
  for (int64_t i = 0; i < samples.n_rows(); i += n_rows) {
    const Batch batch = samples.at(i, n_rows);
    text += fmt::format("\n--- sample {}\n", i / n_rows);
    List& one = json["first"].emplace_back(List::object());
    for (const HostTensor& tensor : batch.tensors) {
      const List& values = one[tensor.spec.name] = values_json(tensor);
      text += fmt::format("{:<14} {}\n", tensor.spec.name, values_text(values));
    }
  }
  write_out(options.json ? json_text(json) : text);
}

}  // namespace octet
