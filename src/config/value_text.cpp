#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <type_traits>

#include "config/value.h"
#include "ir/attr_enums.h"

namespace octet {
namespace {

std::string yaml_quoted(std::string_view text) {
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

// Texts of a list's entries, with commas between.
template <typename List, typename Text>
std::string joined(const List& list, const Text& text_of) {
  std::vector<std::string> texts;
  for (const auto& one : list) texts.push_back(text_of(one));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string override_text(const RecipeOverride& line) {
  if (!line.recipe.empty()) return fmt::format("{}: {}", yaml_quoted(line.pattern), line.recipe);
  return fmt::format("{}: {{{}}}", yaml_quoted(line.pattern),
                     joined(line.formats, [](const auto& one) {
                       return fmt::format("{}: {}", one.first, one.second);
                     }));
}

struct ValueText {
  const ConfigRow& row;
  RunConfig& config;

  template <typename T>
  std::string operator()(FieldOf<T> field) const {
    return text(field(config));
  }
  std::string operator()(const ModelField* field) const { return field_text(*field, config.model); }
  std::string operator()(const ConfigChoice& choice) const { return choice.name(config); }
  std::string operator()(const WeightedFiles& files) const {
    const std::vector<double>& weights = files.weights(config);
    size_t i = 0;
    return fmt::format("[{}]", joined(files.paths(config), [&](const std::string& one) {
                         const std::string path = yaml_quoted(one);
                         const double weight = weights.empty() ? 1 : weights.at(i++);
                         return weight == 1 ? path
                                            : fmt::format("{{path: {}, weight: {}}}", path, weight);
                       }));
  }

  template <typename T>
  requires std::is_arithmetic_v<T> std::string text(T value)
  const { return fmt::format("{}", value); }
  std::string text(const std::string& value) const {
    return row.limits.names == nullptr ? yaml_quoted(value) : value;
  }
  std::string text(std::span<const double> numbers) const {
    return fmt::format("[{}]", fmt::join(numbers, ", "));
  }
  std::string text(const std::vector<std::string>& names) const {
    return fmt::format("[{}]", joined(names, yaml_quoted));
  }
  std::string text(const std::vector<OptimRuleLine>& lines) const {
    return fmt::format("[{}]", joined(lines, [](const OptimRuleLine& line) {
                         return fmt::format("{{match: {}, kind: {}, lr: {}}}",
                                            yaml_quoted(line.match), enum_name(line.kind), line.lr);
                       }));
  }
  std::string text(const std::vector<WeightedLoss>& losses) const {
    if (losses.empty()) return "auto";
    if (losses.size() == 1 && losses[0].weight == 1) return losses[0].name;
    return fmt::format("{{{}}}", joined(losses, [](const WeightedLoss& one) {
                         return fmt::format("{}: {}", one.name, one.weight);
                       }));
  }
  std::string text(const std::vector<RecipeOverride>& lines) const {
    return fmt::format("{{{}}}", joined(lines, override_text));
  }
};

}  // namespace

std::string value_text(const ConfigRow& row, const RunConfig& config) {
  // The table's fields are references to non-const members; the copy is small and this is not a hot
  // path.
  RunConfig copy = config;
  return std::visit(ValueText{row, copy}, row.field);
}

}  // namespace octet
