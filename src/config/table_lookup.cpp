// Look-ups in the table's rows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/table.h"

namespace octet {
namespace {

using enum OnResume;

constexpr ConfigSection kSections[] = {
    {"model", "The model: its shape, or a folder to load it from."},
    {"recipe", "Precision: which format each value of the training step has."},
    {"optim", "The update rule, its schedule, and the formats of its states."},
    {"data", "What is read, and in which order."},
    {"lora", "Low-rank adapters, trained beside weights that stay as they are."},
    {"train", "The run itself."},
    {"parallel", "Several devices that train one model."},
    {"out", "Where results go."},
};

struct ExpectedText {
  const ConfigRow& row;
  std::string bounded(const char* what) const { return what + bounds_text(row.limits.bounds); }
  std::string operator()(FieldOf<bool>) const { return "true or false"; }
  std::string operator()(FieldOf<int64_t>) const { return bounded("an integer"); }
  std::string operator()(FieldOf<double>) const { return bounded("a number"); }
  std::string operator()(FieldOf<std::string>) const { return "text"; }
  std::string operator()(const ConfigChoice&) const { return "a name"; }
  std::string operator()(FieldOf<std::vector<double>>) const {
    return bounded("a list of numbers");
  }
  std::string operator()(FieldOf<std::array<double, 2>>) const {
    return bounded("a list of two numbers");
  }
  std::string operator()(FieldOf<std::vector<std::string>>) const { return "a list of names"; }
  std::string operator()(const WeightedFiles&) const {
    return "a list of names or of {path: FILE, weight: W}";
  }
  std::string operator()(FieldOf<std::vector<RecipeOverride>>) const {
    return "a map from patterns to recipes or formats";
  }
  std::string operator()(FieldOf<std::vector<OptimRuleLine>>) const {
    return "a list of {match: PATTERN, kind: RULE, lr: SHARE}";
  }
  std::string operator()(FieldOf<std::vector<WeightedLoss>>) const {
    return "a loss or a map from losses to weights";
  }
  std::string operator()(const ModelField* field) const {
    if (std::holds_alternative<bool ModelSpec::*>(field->member)) return "true or false";
    if (std::holds_alternative<ModelList>(field->member)) return bounded("a list of integers");
    if (std::holds_alternative<ModelNumbers>(field->member)) return bounded("a list of numbers");
    const bool is_integer = std::holds_alternative<int64_t ModelSpec::*>(field->member);
    return bounded(is_integer ? "an integer" : "a number");
  }
};

}  // namespace

std::vector<std::string> row_names(const ConfigRow& row) {
  if (row.limits.names == nullptr) return {};
  std::vector<std::string> names = row.limits.names();
  if (row.limits.has_auto) names.insert(names.begin(), "auto");
  return names;
}

std::span<const ConfigSection> config_sections() {
  return kSections;
}

const ConfigRow* find_config_row(std::string_view path) {
  const auto row = std::ranges::find(config_rows(), path, &ConfigRow::path);
  return row == config_rows().end() ? nullptr : &*row;
}

bool is_config_section(std::string_view path) {
  return std::ranges::any_of(config_rows(), [path](const ConfigRow& row) {
    return row.path.size() > path.size() && row.path.starts_with(path) &&
           row.path[path.size()] == '.';
  });
}

bool is_shape_key(std::string_view path) {
  return path.starts_with("model.") && path != "model.path" && path != "model.seq" &&
         path != "model.source_seq" && path != "model.images" && path != "model.allow_nonfinite";
}

bool is_of_new_head(std::string_view path, const RunConfig& config) {
  const ModelHead head = config.model.head;
  return path == "model.head" ? head != ModelHead::text
                              : path == "model.classes" && has_classes(head);
}

std::string_view on_resume_text(OnResume rule) {
  switch (rule) {
    case same:
      return "as recorded";
    case named:
      return "by --set";
    case step_size:
      return "same product";
    case open:
      break;
  }
  return "free";
}

std::string expected_text(const ConfigRow& row) {
  if (row.limits.names != nullptr) {
    return fmt::format("one of {}", fmt::join(row_names(row), ", "));
  }
  return std::visit(ExpectedText{row}, row.field);
}

}  // namespace octet
