#include "config/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace octet {
namespace {

bool is_plain(const YAML::Node& node) {
  return node.IsScalar() && node.Tag() != "!";
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "46 GiB" as bytes.
std::optional<int64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kSuffixes[] = {"KiB", "MiB", "GiB", "TiB"};
  for (int i = 0; i < 4; ++i) {
    if (!text.ends_with(kSuffixes[i])) continue;
    text.remove_suffix(kSuffixes[i].size());
    while (text.ends_with(' ')) text.remove_suffix(1);
    const auto number = parse_number<double>(text);
    if (!number) return std::nullopt;
    const double bytes = std::floor(*number * std::ldexp(1.0, 10 * (i + 1)));
    if (!(std::fabs(bytes) < 0x1p62)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return parse_number<int64_t>(text);
}

bool is_choice(std::span<const std::string_view> choices, std::string_view text) {
  return choices.empty() || std::ranges::find(choices, text) != choices.end();
}

std::optional<double> checked_double(const ConfigLimits& limits, const YAML::Node& node) {
  const auto value = is_plain(node) ? parse_number<double>(node.Scalar()) : std::nullopt;
  return value && is_within(limits, *value) ? value : std::nullopt;
}

struct ReadValue {
  const ConfigRow& row;
  const YAML::Node& node;
  const ConfigPlace& place;
  RunConfig& config;

  [[noreturn]] void fail() const { fail_expected(place, expected_text(row), describe(node)); }

  void operator()(bool& (*field)(RunConfig&)) const {
    const bool is_bool = is_plain(node) && (node.Scalar() == "true" || node.Scalar() == "false");
    if (!is_bool) fail();
    field(config) = node.Scalar() == "true";
  }
  void operator()(int64_t& (*field)(RunConfig&)) const {
    if (!is_plain(node) || !is_choice(row.limits.choices, node.Scalar())) fail();
    const auto value =
        row.unit == "bytes" ? parse_bytes(node.Scalar()) : parse_number<int64_t>(node.Scalar());
    if (!value || !is_within(row.limits, static_cast<double>(*value))) fail();
    field(config) = *value;
  }
  void operator()(double& (*field)(RunConfig&)) const {
    const auto value = checked_double(row.limits, node);
    if (!value) fail();
    field(config) = *value;
  }
  void operator()(std::string& (*field)(RunConfig&)) const {
    if (!node.IsScalar() || !is_choice(row.limits.choices, node.Scalar())) fail();
    field(config) = node.Scalar();
  }
  void operator()(std::array<double, 2>& (*field)(RunConfig&)) const {
    if (!node.IsSequence() || node.size() != 2) fail();
    for (size_t i = 0; i < 2; ++i) {
      const auto value = checked_double(row.limits, node[i]);
      if (!value) fail_expected(place, expected_text(row), describe(node[i]) + " in it");
      field(config)[i] = *value;
    }
  }
  void operator()(std::vector<std::string>& (*field)(RunConfig&)) const {
    std::vector<std::string> names;
    if (node.IsScalar()) {
      names.push_back(node.Scalar());
    } else if (node.IsSequence()) {
      for (const YAML::Node& item : node) {
        if (!item.IsScalar()) fail_expected(place, expected_text(row), describe(item) + " in it");
        names.push_back(item.Scalar());
      }
    } else {
      fail();
    }
    field(config) = std::move(names);
  }
  void operator()(std::vector<RecipeOverride>& (*field)(RunConfig&)) const {
    if (!node.IsMap()) fail();
    std::vector<RecipeOverride> overrides;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) fail_expected(place, "a pattern as key", describe(entry.first));
      const std::string& pattern = entry.first.Scalar();
      const ConfigPlace line{place.where, place.path + "." + printable(pattern)};
      const bool known = std::ranges::any_of(
          overrides, [&](const RecipeOverride& other) { return other.pattern == pattern; });
      if (known) fail_expected(line, "each pattern once", "a duplicate");
      overrides.push_back(read_override(pattern, entry.second, line));
    }
    field(config) = std::move(overrides);
  }
};

// "tensor", "row", "1x16", "128x128".
bool is_granularity(std::string_view text) {
  if (text == "tensor" || text == "row") return true;
  const size_t cross = text.find('x');
  if (cross == std::string_view::npos) return false;
  const auto rows = parse_number<int>(text.substr(0, cross));
  const auto cols = parse_number<int>(text.substr(cross + 1));
  return rows && cols && *cols >= 1 && *cols <= 4096 && (*rows == 1 || *rows == *cols);
}

bool is_storage(std::string_view text) {
  const size_t slash = text.find('/');
  return is_choice(override_formats(), text.substr(0, slash)) &&
         (slash == std::string_view::npos || is_granularity(text.substr(slash + 1)));
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char ch : text) {
    const auto byte = static_cast<unsigned char>(ch);
    if (ch == '"' || ch == '\\') {
      out += '\\';
      out += ch;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += ch;
    }
  }
  return out + '"';
}

std::string override_text(const RecipeOverride& line) {
  if (!line.recipe.empty()) return fmt::format("{}: {}", quoted(line.pattern), line.recipe);
  std::vector<std::string> formats;
  for (const auto& [role, format] : line.formats) {
    formats.push_back(fmt::format("{}: {}", role, format));
  }
  return fmt::format("{}: {{{}}}", quoted(line.pattern), fmt::join(formats, ", "));
}

struct ValueText {
  const ConfigRow& row;
  RunConfig& config;

  std::string operator()(bool& (*field)(RunConfig&)) const {
    return field(config) ? "true" : "false";
  }
  std::string operator()(int64_t& (*field)(RunConfig&)) const {
    return fmt::to_string(field(config));
  }
  std::string operator()(double& (*field)(RunConfig&)) const {
    return fmt::format("{}", field(config));
  }
  std::string operator()(std::string& (*field)(RunConfig&)) const {
    return row.limits.choices.empty() ? quoted(field(config)) : field(config);
  }
  std::string operator()(std::array<double, 2>& (*field)(RunConfig&)) const {
    return fmt::format("[{}, {}]", field(config)[0], field(config)[1]);
  }
  std::string operator()(std::vector<std::string>& (*field)(RunConfig&)) const {
    std::vector<std::string> names;
    for (const std::string& name : field(config)) names.push_back(quoted(name));
    return fmt::format("[{}]", fmt::join(names, ", "));
  }
  std::string operator()(std::vector<RecipeOverride>& (*field)(RunConfig&)) const {
    std::vector<std::string> lines;
    for (const RecipeOverride& line : field(config)) lines.push_back(override_text(line));
    return fmt::format("{{{}}}", fmt::join(lines, ", "));
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
  if (!node.IsMap()) {
    if (!node.IsScalar() || !is_choice(recipe_names(), node.Scalar())) {
      fail_expected(place,
                    fmt::format("a map of formats or one of {}", fmt::join(recipe_names(), ", ")),
                    describe(node));
    }
    line.recipe = node.Scalar();
    return line;
  }
  if (node.size() == 0) fail_expected(place, "at least one role", "an empty map");
  for (const auto& entry : node) {
    const std::string role = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const bool again =
        std::ranges::any_of(line.formats, [&](const auto& pair) { return pair.first == role; });
    if (!is_choice(override_roles(), role) || again) {
      fail_expected(place,
                    fmt::format("each of {} at most once", fmt::join(override_roles(), ", ")),
                    describe(entry.first));
    }
    if (!entry.second.IsScalar() || !is_storage(entry.second.Scalar())) {
      fail_expected({place.where, place.path + "." + role},
                    fmt::format("FORMAT[/GRANULARITY] with one of {} and tensor, row, 1xN or NxN",
                                fmt::join(override_formats(), ", ")),
                    describe(entry.second));
    }
    line.formats.emplace_back(role, entry.second.Scalar());
  }
  return line;
}

std::string value_text(const ConfigRow& row, const RunConfig& config) {
  // The table's fields are references to non-const members; the copy is small and this is not a hot
  // path.
  RunConfig copy = config;
  return std::visit(ValueText{row, copy}, row.field);
}

}  // namespace octet
