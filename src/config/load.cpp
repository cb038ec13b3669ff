#include "config/load.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <span>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/named_enum.h"
#include "base/nearest.h"
#include "config/check.h"
#include "config/table.h"
#include "config/value.h"
#include "nn/model.h"
#include "nn/shape.h"
#include "optim/schedule.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

constexpr std::string_view kOverridePrefix = "recipe.override.";

[[noreturn]] void fail_unknown(const ConfigPlace& place) {
  std::vector<std::string> known;
  for (const ConfigRow& row : config_rows()) known.emplace_back(row.path);
  for (const ConfigSection& section : config_sections()) known.emplace_back(section.name);
  known.emplace_back("model.rope_scaling");
  const std::string hint = nearest_hint(", the nearest known key is ", place.path, known);
  throw Error(ErrorCode::invalid_argument, "{}: {}: unknown key{}", place.where, place.path,
              hint.empty() ? " (`octet docs keys` lists them)" : hint);
}

// A section that got a value: most have one key that it was meant for.
[[noreturn]] void fail_section(const ConfigPlace& place, const std::string& got) {
  std::vector<std::string> known;
  for (const ConfigRow& row : config_rows()) known.emplace_back(row.path);
  fail_expected(place, "a map of " + place.path + " keys",
                got + nearest_hint("; the nearest key is ", synonym_of(place.path, known), known));
}

// The YAML library ends a text at its first NUL, and would drop the rest without a word.
void expect_text(const std::string& text, const std::string& name) {
  const size_t nul = text.find('\0');
  if (nul == std::string::npos) return;
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n');
  throw Error(ErrorCode::invalid_argument, "{}:{}: expected text, got a NUL byte", name, line + 1);
}

// Notes where a document begins, and ends the reading of one that is nested too deeply or refers
// to itself too often, that gives a key of a map twice, or that has tags, of which nothing is made.
class DocumentWatcher : public YAML::EventHandler {
 public:
  DocumentWatcher(const std::string& name, const YamlLimits& limits)
      : name_(name), limits_(limits) {}
  int line() const { return line_; }
  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override { take(); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    if (++n_aliases_ > limits_.max_aliases) refuse(mark, "aliases", limits_.max_aliases);
    take();
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& text) override {
    expect_no_tag(mark, tag);
    if (!open_.empty() && open_.back().is_map && open_.back().takes_key) note_key(mark, text);
    take();
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, false);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, true);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    bool is_map = false, takes_key = true;
    std::string key = {};  // the last one
    std::map<std::string, int> lines = {};
  };

  // A node of what is open: of a map in turn a key and a value.
  void take() {
    if (!open_.empty()) open_.back().takes_key = !open_.back().takes_key;
  }
  void open(const YAML::Mark& mark, const std::string& tag, bool is_map) {
    expect_no_tag(mark, tag);
    take();
    if (std::ssize(open_) == limits_.max_depth) refuse(mark, "levels", limits_.max_depth);
    open_.push_back({.is_map = is_map});
  }
  void note_key(const YAML::Mark& mark, const std::string& key) {
    const int line = mark.line + 1;
    open_.back().key = key;
    const auto [first, is_new] = open_.back().lines.emplace(key, line);
    if (is_new) return;
    std::string path;
    for (const Open& one : open_)
      if (one.is_map) path += (path.empty() ? "" : ".") + printable(one.key);
    throw Error(ErrorCode::invalid_argument, "{}:{}: {}: duplicate key, first given on line {}",
                name_, line, path, first->second);
  }
  // "?" and "!" are those of a node without one, plain or quoted.
  void expect_no_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw Error(ErrorCode::invalid_argument, "{}:{}: expected a value without a tag, got '{}'",
                name_, mark.line + 1, printable(tag));
  }
  [[noreturn]] void refuse(const YAML::Mark& mark, const char* what, int64_t most) const {
    throw Error(ErrorCode::invalid_argument, "{}:{}: expected at most {} {}, got more", name_,
                mark.line + 1, most, what);
  }

  const std::string& name_;
  const YamlLimits& limits_;
  int line_ = 0;
  int64_t n_aliases_ = 0;
  std::vector<Open> open_;
};

// One document after another is asked for here, and two at most: at a bracket too many the library
// finds empty documents without end.
void expect_one_document(const std::string& text, const std::string& name,
                         const YamlLimits& limits) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentWatcher watcher(name, limits);
  if (!parser.HandleNextDocument(watcher) || !parser.HandleNextDocument(watcher)) return;
  throw Error(ErrorCode::invalid_argument, "{}:{}: expected the end of the document, got more",
              name, watcher.line());
}

}  // namespace

YAML::Node parse_yaml(const std::string& text, const std::string& name, const YamlLimits& limits) {
  expect_text(text, name);
  try {
    expect_one_document(text, name, limits);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw Error(ErrorCode::invalid_argument, "{}:{}: expected YAML, got a syntax error: {}", name,
                std::max(error.mark.line, 0) + 1, error.msg);
  }
}

namespace {

// Writes one source (the file, or one --set) into the configuration.
class Reader {
 public:
  Reader(LoadedConfig& loaded, std::string name, bool has_lines)
      : loaded_(loaded), name_(std::move(name)), has_lines_(has_lines) {}

  void read_root(const YAML::Node& root) {
    if (root.IsNull()) return;
    if (!root.IsMap()) {
      throw Error(ErrorCode::invalid_argument, "{}: expected a map of sections, got {}", name_,
                  describe(root));
    }
    read_map(root, "");
  }

  void read_entry(const ConfigPlace& place, const YAML::Node& node) {
    if (place.path == "recipe" && !node.IsMap())
      return read_row(*find_config_row("recipe.base"), place, node);
    if (const ConfigRow* row = find_config_row(place.path)) return read_row(*row, place, node);
    if (place.path.starts_with(kOverridePrefix)) return read_override_line(place, node);
    if (!is_config_section(place.path)) fail_unknown(place);
    if (!node.IsMap()) fail_section(place, describe(node));
    read_map(node, place.path + ".");
  }

 private:
  std::string where(const YAML::Node& node) const {
    return has_lines_ ? fmt::format("{}:{}", name_, node.Mark().line + 1) : name_;
  }

  void read_map(const YAML::Node& map, const std::string& prefix) {
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) {
        throw Error(ErrorCode::invalid_argument, "{}: expected a name as key, got {}",
                    where(entry.first), describe(entry.first));
      }
      const ConfigPlace place{where(entry.first), prefix + printable(entry.first.Scalar())};
      if (place.path.starts_with(kOverridePrefix)) fail_unknown(place);
      read_entry(place, entry.second);
    }
  }

  // A key may also be reached by two ways: `train.steps` and `train: {steps: ...}`.
  void read_row(const ConfigRow& row, const ConfigPlace& place, const YAML::Node& node) {
    const auto [first, is_new] = read_.emplace(row.path, place.where);
    if (!is_new) {
      throw Error(ErrorCode::invalid_argument, "{}: {}: duplicate key, first given at {}",
                  place.where, place.path, first->second);
    }
    read_value(row, node, place, loaded_.config);
    loaded_.source[std::string(row.path)] = place.where;
  }

  void read_override_line(const ConfigPlace& place, const YAML::Node& node) {
    const RecipeOverride line =
        read_override(place.path.substr(kOverridePrefix.size()), node, place);
    auto& lines = loaded_.config.recipe.overrides;
    std::erase_if(lines,
                  [&](const RecipeOverride& other) { return other.pattern == line.pattern; });
    lines.push_back(line);
    loaded_.source["recipe.override"] = place.where;
  }

  LoadedConfig& loaded_;
  std::string name_;
  bool has_lines_;
  std::map<std::string_view, std::string> read_ = {};  // keys, and where they were given
};

void apply_set(LoadedConfig& loaded, const std::string& set, const YamlLimits& limits) {
  const size_t equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorCode::invalid_argument, "--set: expected KEY=VALUE, got '{}'", printable(set));
  }
  const std::string path = printable(set.substr(0, equals));
  const std::string value = set.substr(equals + 1);
  if (value.empty()) fail_expected({"--set", path}, "a value after =", "nothing");
  Reader reader(loaded, "--set", false);
  reader.read_entry({"--set", path}, parse_yaml(value, "--set " + path, limits));
}

// A short trial run needs no warmup of its own choosing: nobody asked for the default's length, and
// a file's was chosen for the file's train.steps, which --set replaces.
void fit_warmup(LoadedConfig& loaded) {
  const bool is_of_other_length =
      is_set(loaded.source, "train.steps") && !is_set(loaded.source, "optim.warmup");
  if (is_written(loaded.source, "optim.warmup") && !is_of_other_length) return;
  int64_t& warmup = loaded.config.optim.warmup;
  const int64_t fitted = fitted_warmup(warmup, loaded.config.train.steps);
  if (std::exchange(warmup, fitted) != fitted) loaded.source["optim.warmup"] = "derived";
}

// Who names a key of chat data has chat data.
void fit_default_template(LoadedConfig& loaded) {
  const auto is_chat_key = [](const auto& entry) {
    return entry.first.starts_with("data.chat.") && entry.second != "default";
  };
  const bool is_named = std::ranges::any_of(loaded.source, is_chat_key);
  if (is_named && loaded.source["data.chat.template"] == "default") {
    loaded.config.data.chat.chat_template = "auto";
  }
}

// Rows of several documents keep them apart.
void fit_default_boundaries(LoadedConfig& loaded) {
  DataConfig& data = loaded.config.data;
  const bool is_open = loaded.source["data.document_boundaries"] == "default";
  if (data.pack && is_open) data.document_boundaries = DocumentBoundaries::isolate;
}

// Validation data of their own leave the training data whole.
void fit_default_fraction(LoadedConfig& loaded) {
  DataConfig& data = loaded.config.data;
  const bool is_open = loaded.source["data.val_fraction"] == "default";
  if (!data.val.empty() && is_open) data.val_fraction = 0;
}

void fit_norm_eps(LoadedConfig& loaded) {
  ModelConfig& model = loaded.config.model;
  const bool is_open = loaded.source["model.norm_eps"] == "default";
  if (is_open && model.path.empty()) model.norm_eps = model_def(model.kind).usual_norm_eps;
}

// Marks what resolve() changed: a value that nobody wrote.
void mark_derived(LoadedConfig& loaded, const RunConfig& written) {
  for (const ConfigRow& row : config_rows()) {
    if (value_text(row, written) == value_text(row, loaded.config)) continue;
    loaded.source[std::string(row.path)] = "derived";
  }
}

}  // namespace

bool is_set(const ConfigSources& sources, std::string_view key) {
  const auto source = sources.find(key);
  return source != sources.end() && source->second == "--set";
}

bool is_written(const ConfigSources& sources, std::string_view key) {
  const auto source = sources.find(key);
  return source == sources.end() || (source->second != "default" && source->second != "derived");
}

LoadedConfig parse_config(const std::string& text, const std::string& name,
                          const std::vector<std::string>& sets, const YamlLimits& limits) {
  LoadedConfig loaded;
  for (const ConfigRow& row : config_rows()) loaded.source[std::string(row.path)] = "default";
  Reader(loaded, name, true).read_root(parse_yaml(text, name, limits));
  for (const std::string& set : sets) apply_set(loaded, set, limits);
  check_written(loaded, name);
  const RunConfig written = loaded.config;
  fit_warmup(loaded);
  fit_default_template(loaded);
  fit_default_boundaries(loaded);
  fit_default_fraction(loaded);
  fit_norm_eps(loaded);
  resolve(loaded.config);
  check_resolved(loaded, name);
  mark_derived(loaded, written);
  return loaded;
}

namespace {

// True if there is more than white space and comments.
bool has_keys(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != line.npos && line[first] != '#') return true;
  }
  return false;
}

std::string read_config_text(const std::string& file) {
  constexpr uint64_t kLargest = 1 << 20;
  const Files& files = posix_files();
  const auto stream = files.open_stream(file, kLargest);
  if (stream->size() > kLargest) {
    throw Error(ErrorCode::invalid_argument, "{}: expected at most {} bytes, got {}", file,
                kLargest, stream->size());
  }
  std::string text(stream->size(), '\0');
  stream->read_at(0, text);
  // Without a key the defaults are trained: of a pipe, because what should have written it failed.
  const bool is_file = files.kind(file) == EntryKind::file || file == "/dev/null";
  if (!is_file && !has_keys(text)) {
    throw Error(ErrorCode::invalid_argument, "{}: expected a configuration, got an empty pipe",
                file);
  }
  return text;
}

}  // namespace

LoadedConfig load_config(const std::string& file, const std::vector<std::string>& sets) {
  std::string text;
  try {
    text = read_config_text(file);
  } catch (const Error& error) {  // a name that is mistyped is a mistake of usage
    throw Error(ErrorCode::invalid_argument, error.what());
  }
  return parse_config(text, file, sets);
}

void resolve(RunConfig& config) {
  const int64_t classes = config.model.classes;
  static_cast<ModelSpec&>(config.model) = filled(config.model);
  if (!config.model.path.empty() && has_classes(config.model.head))
    config.model.classes = classes;  // 0: the folder's
  const Recipe& recipe = find_recipe(config.recipe.base);
  const bool predicts = !recipe.scales_loss && !config.model.path.empty();
  // A recheck rescales what it finds; before it a run from first weights needs no rescaling.
  const int64_t first = recipe.scales_loss ? 0 : config.recipe.recheck;
  if (!config.recipe.weight_rms)
    config.recipe.weight_rms = predicts ? WeightRms::loaded : WeightRms::init;
  if (config.recipe.calibrate == "auto")
    config.recipe.calibrate = predicts ? "before" : fmt::to_string(first);
  if (!config.recipe.scaling) config.recipe.scaling = recipe.scaling;
  OptimConfig& optim = config.optim;
  if (optim.state_m == "auto") optim.state_m = recipe.state;
  if (optim.state_v == "auto")
    optim.state_v = recipe.state_v.empty() ? recipe.state : recipe.state_v;
  if (!config.recipe.compute) config.recipe.compute = recipe.compute;
  if (!config.recipe.activations)
    config.recipe.activations = recipe.activations.value_or(Dtype::bf16);
  if (!optim.master) {
    const bool is_own = recipe.compute == config.recipe.compute;
    optim.master = enum_from_name<Master>(is_own ? default_master(recipe)
                                                 : default_master(*config.recipe.compute));
  }
  ParallelConfig& parallel = config.parallel;
  if (!parallel.reduce) parallel.reduce = parallel.strict ? ReduceFormat::bf16 : recipe.reduce;
  DataConfig& data = config.data;
  if (!data.sampling)
    data.sampling = data.shuffle ? WindowOrder::shuffled : WindowOrder::sequential;
  data.shuffle = data.sampling != WindowOrder::sequential;
}

}  // namespace octet
