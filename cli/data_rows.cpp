#include "cli/data_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

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
  if (values.is_null()) return "no numbers yet";
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
  std::vector<float> reals = std::get<std::vector<float>>(tensor.values);
  std::erase_if(reals, [](float value) { return std::isnan(value); });
  if (reals.empty()) return nullptr;
  const auto [least, most] = std::ranges::minmax(reals);
  const double sum = std::accumulate(reals.begin(), reals.end(), 0.0);
  return {{"mean", sum / static_cast<double>(reals.size())}, {"least", least}, {"most", most}};
}

// A row's text in parts, each trained or not: its tokens, and behind them the last label.
List parts_of_row(const Batch& batch, int64_t row, const Tokenizer& tokenizer) {
  const auto begin = static_cast<size_t>(row * batch.seq);
  const auto n = static_cast<size_t>(batch.lengths[static_cast<size_t>(row)]);
  const auto tokens = std::span(batch.ints("tokens")).subspan(begin, n);
  const auto labels = std::span(batch.ints("labels")).subspan(begin, n);
  std::vector<int32_t> ids(tokens.begin(), tokens.end());
  std::vector<bool> are_trained = {false};
  for (const int32_t label : labels) are_trained.push_back(label != kIgnoredLabel);
  are_trained.back() ? ids.push_back(labels.back()) : are_trained.pop_back();
  List parts = List::array();
  for (size_t at = 0; at < ids.size();) {
    size_t end = at + 1;
    while (end < ids.size() && are_trained[end] == are_trained[at]) ++end;
    parts.push_back({{"text", tokenizer.decode(std::span(ids).subspan(at, end - at))},
                     {"trained", bool{are_trained[at]}}});
    at = end;
  }
  return parts;
}

void write_parts(const char* name, const List& parts) {
  write_out(fmt::format("{:<14} ", name));
  for (const List& part : parts) {
    const auto text = part.at("text").get<std::string>();
    part.at("trained").get<bool>() ? write_marked(text) : write_out(text);
  }
  write_out("\n");
}

bool has_labelled_tokens(const RowSource& rows) {
  const auto is_a_token_s = [&](const char* name) {
    return std::ranges::any_of(rows.inputs(), [&](const InputSpec& input) {
      return input.name == name && input.per == Per::token && input.inner.empty();
    });
  };
  return rows.tells_lengths() && is_a_token_s("tokens") && is_a_token_s("labels");
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
                    const Tokenizer* tokenizer, const GlobalOptions& options) {
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
    if (!options.json) write_out(std::exchange(text, ""));
    if (tokenizer == nullptr || !has_labelled_tokens(rows)) continue;
    for (int64_t row = 0; row < n_rows; ++row) {
      const List& parts = one["rows"].emplace_back(parts_of_row(batch, row, *tokenizer));
      if (!options.json) write_parts(row == 0 ? "chosen" : "rejected", parts);
    }
  }
  write_out(options.json ? json_text(json) : text);
}

}  // namespace octet
