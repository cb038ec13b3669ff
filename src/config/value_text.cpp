#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string override_text(const RecipeOverride& line) {
  if (!line.recipe.empty()) return fmt::format("{}: {}", yaml_quoted(line.pattern), line.recipe);
  std::vector<std::string> formats;
  for (const auto& [role, format] : line.formats) {
    formats.push_back(fmt::format("{}: {}", role, format));
  }
  return fmt::format("{}: {{{}}}", yaml_quoted(line.pattern), fmt::join(formats, ", "));
}

struct ValueText {
  const ConfigRow& row;
  RunConfig& config;

  std::string operator()(const ModelField* field) const { return field_text(*field, config.model); }
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
    return row.limits.names == nullptr ? yaml_quoted(field(config)) : field(config);
  }
  std::string operator()(const ConfigChoice& choice) const { return choice.name(config); }
  std::string operator()(std::array<double, 2>& (*field)(RunConfig&)) const {
    return fmt::format("[{}, {}]", field(config)[0], field(config)[1]);
  }
  std::string operator()(std::vector<double>& (*field)(RunConfig&)) const {
    return fmt::format("[{}]", fmt::join(field(config), ", "));
  }
  std::string operator()(std::vector<std::string>& (*field)(RunConfig&)) const {
    std::vector<std::string> names;
    for (const std::string& name : field(config)) names.push_back(yaml_quoted(name));
    return fmt::format("[{}]", fmt::join(names, ", "));
  }
  std::string operator()(const WeightedFiles& files) const {
    const std::vector<std::string>& paths = files.paths(config);
    const std::vector<double>& weights = files.weights(config);
    std::vector<std::string> names;
    for (size_t i = 0; i < paths.size(); ++i) {
      const std::string path = yaml_quoted(paths[i]);
      const double weight = weights.empty() ? 1 : weights.at(i);
      names.push_back(weight == 1 ? path : fmt::format("{{path: {}, weight: {}}}", path, weight));
    }
    return fmt::format("[{}]", fmt::join(names, ", "));
  }
  std::string operator()(std::vector<OptimRuleLine>& (*field)(RunConfig&)) const {
    std::vector<std::string> lines;
    for (const OptimRuleLine& line : field(config))
      lines.push_back(fmt::format("{{match: {}, kind: {}, lr: {}}}", yaml_quoted(line.match),
                                  enum_name(line.kind), line.lr));
    return fmt::format("[{}]", fmt::join(lines, ", "));
  }
  std::string operator()(std::vector<WeightedLoss>& (*field)(RunConfig&)) const {
    const std::vector<WeightedLoss>& losses = field(config);
    if (losses.empty()) return "auto";
    if (losses.size() == 1 && losses[0].weight == 1) return losses[0].name;
    std::vector<std::string> lines;
    for (const WeightedLoss& one : losses)
      lines.push_back(fmt::format("{}: {}", one.name, one.weight));
    return fmt::format("{{{}}}", fmt::join(lines, ", "));
  }
  std::string operator()(std::vector<RecipeOverride>& (*field)(RunConfig&)) const {
    std::vector<std::string> lines;
    for (const RecipeOverride& line : field(config)) lines.push_back(override_text(line));
    return fmt::format("{{{}}}", fmt::join(lines, ", "));
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
