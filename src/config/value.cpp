#include "config/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/nearest.h"
#include "base/parse_text.h"
#include "config/names.h"
#include "ir/attr_enums.h"
#include "passes/precision/policy.h"

namespace octet {
namespace {

bool is_plain(const YAML::Node& node) {
  return node.IsScalar() && node.Tag() != "!";
}

// No leading zero: older YAML reads 020 as 16, newer as 20.
template <typename Number>
std::optional<Number> signed_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool is_padded =
      digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9';
  return is_padded ? std::nullopt : parse_number<Number>(text);
}

// "46 GiB" as bytes.
std::optional<int64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kSuffixes[] = {"KiB", "MiB", "GiB", "TiB"};
  for (int i = 0; i < 4; ++i) {
    if (!text.ends_with(kSuffixes[i])) continue;
    text.remove_suffix(kSuffixes[i].size());
    while (text.ends_with(' ')) text.remove_suffix(1);
    const auto number = signed_number<double>(text);
    if (!number) return std::nullopt;
    const double bytes = std::floor(*number * std::ldexp(1.0, 10 * (i + 1)));
    if (!(std::fabs(bytes) < 0x1p62)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return signed_number<int64_t>(text);
}

bool is_known(const ConfigRow& row, std::string_view text) {
  return row.limits.names == nullptr || is_one_of(row_names(row), text);
}

// The value that came, in words, with the nearest of the names that might have been meant.
std::string describe_name(const YAML::Node& node, const std::vector<std::string>& names) {
  if (!node.IsScalar() || names.empty()) return describe(node);
  return describe(node) + nearest_hint("; the nearest is ", node.Scalar(), names);
}

std::optional<double> checked_double(const ConfigLimits& limits, const YAML::Node& node) {
  const auto value = is_plain(node) ? signed_number<double>(node.Scalar()) : std::nullopt;
  return value && is_within(limits.bounds, *value) ? value : std::nullopt;
}

struct ReadValue {
  const ConfigRow& row;
  const YAML::Node& node;
  const ConfigPlace& place;
  RunConfig& config;

  [[noreturn]] void fail() const { fail_expected(place, expected_text(row), describe(node)); }

  [[noreturn]] void fail_name() const {
    fail_expected(place, expected_text(row), describe_name(node, row_names(row)));
  }

  [[noreturn]] void fail_item(const YAML::Node& item) const {
    fail_expected(place, expected_text(row), describe(item) + " in it");
  }

  void expect_name() const {
    if (!node.IsScalar() || !is_known(row, node.Scalar())) fail_name();
  }

  ConfigPlace within(const std::string& key) const {
    return {place.where, place.path + "." + printable(key)};
  }

  void read(bool& value) const {
    const bool is_bool = is_plain(node) && (node.Scalar() == "true" || node.Scalar() == "false");
    if (!is_bool) fail();
    value = node.Scalar() == "true";
  }
  void read(int64_t& value) const {
    if (!is_plain(node) || !is_known(row, node.Scalar())) fail();
    const auto number =
        row.unit == "bytes" ? parse_bytes(node.Scalar()) : signed_number<int64_t>(node.Scalar());
    if (!number || !is_within(row.limits.bounds, static_cast<double>(*number))) fail();
    value = *number;
  }
  void read(double& value) const {
    const auto number = checked_double(row.limits, node);
    if (!number) fail();
    value = *number;
  }

  void read(std::string& value) const {
    expect_name();
    value = node.Scalar();
  }
  void read(std::array<double, 2>& values) const {
    if (!node.IsSequence() || node.size() != 2) fail();
    for (size_t i = 0; i < 2; ++i) values[i] = item_number(node[i]);
  }
  void read(std::vector<double>& values) const {
    std::vector<double> numbers;
    for_each_item([&](const YAML::Node& item) { numbers.push_back(item_number(item)); });
    if (numbers.empty()) fail();
    values = std::move(numbers);
  }
  // 0, where it is no item: what the model fills in.
  void read(std::vector<int64_t>& values) const {
    std::vector<int64_t> numbers;
    for_each_item([&](const YAML::Node& item) {
      const auto number =
          is_plain(item) ? signed_number<int64_t>(item.Scalar()) : std::optional<int64_t>();
      if (!number || !is_within(row.limits.bounds, static_cast<double>(*number))) fail_item(item);
      numbers.push_back(*number);
    });
    const auto* field = std::get_if<const ModelField*>(&row.field);
    const bool is_item = field != nullptr && is_within((*field)->bounds, 0);
    if (numbers == std::vector<int64_t>{0} && !is_item) numbers.clear();
    values = std::move(numbers);
  }
  void read(std::vector<std::string>& values) const {
    std::vector<std::string> names;
    for_each_item([&](const YAML::Node& item) {
      if (!item.IsScalar()) fail_item(item);
      names.push_back(item.Scalar());
    });
    values = std::move(names);
  }
  void read(std::vector<RecipeOverride>& values) const {
    if (!node.IsMap()) fail();
    std::vector<RecipeOverride> overrides;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) fail_expected(place, "a pattern as key", describe(entry.first));
      const std::string& pattern = entry.first.Scalar();
      overrides.push_back(read_override(pattern, entry.second, within(pattern)));
    }
    values = std::move(overrides);
  }
  void read(std::vector<OptimRuleLine>& values) const {
    if (!node.IsSequence()) fail();
    std::vector<OptimRuleLine> lines;
    for (const YAML::Node& item : node) {
      if (!item.IsMap()) fail_item(item);
      lines.push_back(read_rule(item));
    }
    values = std::move(lines);
  }
  void read(std::vector<WeightedLoss>& values) const {
    std::vector<WeightedLoss> losses;
    const std::vector<std::string> names = node.IsMap() ? row.limits.names() : row_names(row);
    const auto add = [&](const YAML::Node& name, double weight) {
      const std::string& text = name.Scalar();
      if (!is_one_of(names, text))
        fail_expected(place, expected_text(row), describe_name(name, names));
      if (text != "auto") losses.push_back({.name = text, .weight = weight});
    };
    if (!node.IsScalar() && (!node.IsMap() || node.size() == 0)) fail();
    if (node.IsScalar()) add(node, 1);
    if (node.IsMap()) {
      for (const auto& entry : node) add(entry.first, number_of(entry.second, place));
    }
    values = std::move(losses);
  }

  template <typename T>
  void operator()(FieldOf<T> field) const {
    read(field(config));
  }
  void operator()(const ModelField* field) const {
    std::visit([this](auto member) { read_member(member); }, field->member);
  }
  template <typename T>
  void read_member(T ModelSpec::*member) const {
    read(config.model.*member);
  }
  // 0: what the model fills in.
  void read_member(ModelNumbers member) const {
    std::vector<double> numbers;
    for_each_item([&](const YAML::Node& item) { numbers.push_back(item_number(item)); });
    if (numbers == std::vector<double>{0}) numbers.clear();
    config.model.*member = std::move(numbers);
  }
  void read_member(const ModelEnum* member) const {
    const std::vector<std::string> names = member->names();
    const auto at = std::ranges::find(names, node.Scalar());
    if (at == names.end()) fail_name();
    member->set(config.model, static_cast<int>(at - names.begin()));
  }
  void operator()(const ConfigChoice& choice) const {
    expect_name();
    choice.set(config, node.Scalar());
  }
  void operator()(const WeightedFiles& files) const {
    std::vector<std::string> paths;
    std::vector<double> weights;
    for_each_item([&](const YAML::Node& item) {
      if (!item.IsScalar() && !item.IsMap()) fail_item(item);
      paths.push_back(item.Scalar());
      weights.push_back(1);
      if (item.IsMap()) read_file(item, paths.back(), weights.back());
    });
    if (std::ranges::all_of(weights, [](double weight) { return weight == 1; })) weights.clear();
    files.paths(config) = std::move(paths);
    files.weights(config) = std::move(weights);
  }

  // A list's items, or a scalar as the one of a list.
  template <typename Take>
  void for_each_item(const Take& take) const {
    if (!node.IsScalar() && !node.IsSequence()) fail();
    if (node.IsScalar()) take(node);
    if (node.IsSequence()) std::ranges::for_each(node, take);
  }
  double item_number(const YAML::Node& item) const {
    const auto number = checked_double(row.limits, item);
    if (!number) fail_item(item);
    return *number;
  }
  // In a map of a list, within the row's bounds.
  double number_of(const YAML::Node& item, const ConfigPlace& at) const {
    const auto number = checked_double(row.limits, item);
    if (!number) fail_expected(at, "a number" + bounds_text(row.limits.bounds), describe(item));
    return *number;
  }
  // {path: FILE, weight: W}
  void read_file(const YAML::Node& item, std::string& path, double& weight) const {
    for (const auto& entry : item) {
      const std::string& key = entry.first.Scalar();
      if (key == "path" && entry.second.IsScalar()) {
        path = entry.second.Scalar();
      } else if (key == "weight") {
        weight = number_of(entry.second, within(key));
      } else {
        fail_expected(within(key), "path: FILE and weight: NUMBER", describe(entry.second));
      }
    }
    if (path.empty()) fail_expected(place, expected_text(row), "a map without a path in it");
  }
  OptimRuleLine read_rule(const YAML::Node& item) const {
    OptimRuleLine line;
    for (const auto& entry : item) {
      const std::string &key = entry.first.Scalar(), &text = entry.second.Scalar();
      if (key == "match" && !text.empty()) {
        line.match = text;
      } else if (key == "kind") {
        const auto kind = enum_from_name<UpdateKind>(text);
        const auto kinds = names_of<UpdateKind>();
        if (!kind)
          fail_expected(within(key), fmt::format("one of {}", fmt::join(kinds, ", ")),
                        describe_name(entry.second, kinds));
        line.kind = *kind;
      } else if (key == "lr") {
        line.lr = number_of(entry.second, within(key));
      } else {
        fail_expected(within(key), "match: PATTERN, kind: RULE and lr: SHARE",
                      describe(entry.second));
      }
    }
    if (line.match.empty()) fail_expected(place, expected_text(row), "a map without match in it");
    return line;
  }
};

}  // namespace

void fail_expected(const ConfigPlace& place, const std::string& expected, const std::string& got) {
  throw Error(ErrorCode::invalid_argument, "{}: {}: expected {}, got {}", place.where, place.path,
              expected, got);
}

std::string printable(std::string text) {
  for (char& ch : text) {
    if (static_cast<unsigned char>(ch) < 0x20 || ch == 0x7f) ch = ' ';
  }
  return text;
}

std::string describe(const YAML::Node& node) {
  if (node.IsSequence()) return fmt::format("a list of {}", node.size());
  if (node.IsMap()) return "a map";
  if (!node.IsScalar()) return "nothing";
  constexpr size_t kLongest = 60;
  const std::string text = printable(node.Scalar().substr(0, kLongest));
  return fmt::format("'{}{}'", text, node.Scalar().size() > kLongest ? "..." : "");
}

void read_value(const ConfigRow& row, const YAML::Node& node, const ConfigPlace& place,
                RunConfig& config) {
  std::visit(ReadValue{row, node, place, config}, row.field);
}

RecipeOverride read_override(const std::string& pattern, const YAML::Node& node,
                             const ConfigPlace& place) {
  RecipeOverride line{.pattern = pattern, .recipe = {}, .formats = {}};
  if (pattern.empty()) fail_expected(place, "a pattern of names", "an empty one");
  const std::vector<std::string> recipes = override_recipe_names(), roles = override_roles(),
                                 formats = override_formats();
  if (!node.IsMap()) {
    if (!node.IsScalar() || !is_one_of(recipes, node.Scalar())) {
      fail_expected(place, fmt::format("a map of formats or one of {}", fmt::join(recipes, ", ")),
                    describe_name(node, recipes));
    }
    line.recipe = node.Scalar();
    return line;
  }
  if (node.size() == 0) fail_expected(place, "at least one role", "an empty map");
  for (const auto& entry : node) {
    const std::string& role = entry.first.Scalar();
    if (!is_one_of(roles, role)) {
      fail_expected(place, fmt::format("each of {} at most once", fmt::join(roles, ", ")),
                    describe(entry.first));
    }
    const bool is_format =
        entry.second.IsScalar() && operand_format_from_name(entry.second.Scalar(), role == "dy");
    if (role == kSumsRole) {
      const std::vector<std::string> sums = names_of<GemmSums>();
      if (!entry.second.IsScalar() || !is_one_of(sums, entry.second.Scalar()))
        fail_expected({place.where, place.path + "." + role},
                      fmt::format("one of {}", fmt::join(sums, ", ")),
                      describe_name(entry.second, sums));
    } else if (!is_format) {
      fail_expected({place.where, place.path + "." + role},
                    fmt::format("one of {}, with /row, /1xG or /BxB behind it, or {}",
                                fmt::join(formats, ", "), kNotQuantized),
                    describe_name(entry.second, formats));
    }
    line.formats.emplace_back(role, entry.second.Scalar());
  }
  return line;
}

}  // namespace octet
