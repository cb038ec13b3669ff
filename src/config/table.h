// The one table of configuration keys: parser, --set, checks, --help and docs/configuration.md are
// made from it. A row's type is the type of the field that it points to; its default is that
// field's value in RunConfig{}. To add a key: a field with its default in config/run_config.h, a
// row here. The rows of a model's shape are made from its own table, nn/fields.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bounds.h"
#include "config/run_config.h"
#include "nn/fields.h"

namespace octet {

// The field of a configuration that keeps a value.
template <typename T>
using FieldOf = T& (*)(RunConfig&);

// Files of which each may have a weight: a list of names and of {path, weight}.
struct WeightedFiles {
  FieldOf<std::vector<std::string>> paths;
  FieldOf<std::vector<double>> weights;  // empty: all are 1
};

// An enum, a dtype or a switch that may be absent, by the names that the row's limits have.
struct ConfigChoice {
  void (*set)(RunConfig&, std::string_view name);
  std::string (*name)(RunConfig&);
};

using ConfigField =
    std::variant<FieldOf<bool>, FieldOf<int64_t>, FieldOf<double>, FieldOf<std::string>,
                 ConfigChoice, FieldOf<std::array<double, 2>>, FieldOf<std::vector<double>>,
                 FieldOf<std::vector<std::string>>, FieldOf<std::vector<RecipeOverride>>,
                 FieldOf<std::vector<OptimRuleLine>>, FieldOf<std::vector<WeightedLoss>>,
                 WeightedFiles, const ModelField*>;

// The names that a value may have, asked of those who know them: recipes, models, state formats.
using ConfigNames = std::vector<std::string> (*)();

// Limits of a value, beyond its type. Bounds are for numbers: each has two, within what an int64_t
// counts exactly as a double, or within f32. Names, compared as text, are for any scalar.
struct ConfigLimits {
  Bounds bounds = {};
  ConfigNames names = nullptr;  // nullptr: anything
  bool has_auto = false;        // "auto" besides
};

// Changes of a key that a run which goes on from a checkpoint may make. Keys that are not `open`
// are recorded in each checkpoint's manifest.
enum class OnResume : uint8_t {
  same,       // nothing: it decides what the weights and states mean
  named,      // where the command line names the key; the change is logged
  step_size,  // batch, accumulate and ranks: where their product stays; the change is logged
  open,       // anything: it does not decide what is computed, or is compared by content
};

struct ConfigRow {
  std::string_view path;  // dotted, as in --set
  OnResume on_resume;
  ConfigField field;
  ConfigLimits limits;
  std::string_view
      unit;  // empty: a plain number or name. "bytes" accepts the suffixes KiB, MiB, GiB, TiB
  std::string_view help;
};

struct ConfigSection {
  std::string_view name;
  std::string_view help;
};

std::span<const ConfigRow> config_rows();
std::span<const ConfigSection> config_sections();

// The row with this path, or nullptr.
const ConfigRow* find_config_row(std::string_view path);
// True if keys lie below this path: "model", "model.rope_scaling".
bool is_config_section(std::string_view path);

// True if a model's folder decides this key: all of "model." but path and seq.
bool is_shape_key(std::string_view path);
// True if such a key counts beside model.path: of another head than the folder's.
bool is_of_new_head(std::string_view path, const RunConfig& config);

// The rule of --resume in words: "as recorded", "by --set".
std::string_view on_resume_text(OnResume rule);

// The kind of value that a row takes, in words: "an integer", "one of fp32, bf16", "a number > 0".
std::string expected_text(const ConfigRow& row);

// Every name that the row takes, "auto" first; empty where it takes anything.
std::vector<std::string> row_names(const ConfigRow& row);

}  // namespace octet
