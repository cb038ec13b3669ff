#include "io/quantization_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "base/error.h"
#include "base/integer.h"
#include "base/json.h"
#include "base/named_enum.h"
#include "formats/table.h"
#include "io/modelopt_config.h"
#include "text/regex.h"

namespace octet {
namespace {

constexpr const char* kKey = "quantization_config";
constexpr int64_t kMaxBlock = 1 << 20;

// Keys that are read here or elsewhere; of modules and of parts, by what their tensors are.
using KeyList = std::span<const std::string_view>;
constexpr std::string_view kFp8Keys[] = {"quant_method",      "fmt",       "activation_scheme",
                                         "weight_block_size", "scale_fmt", "dequantize",
                                         "expert_dtype"};
// A module is what its tensors are, whatever these lists say of it.
constexpr std::string_view kFp8NeutralKeys[] = {"ignored_layers", "modules_to_convert",
                                                "modules_to_not_convert"};
constexpr std::string_view kCompressedKeys[] = {
    "quant_method",    "format",     "quantization_status", "config_groups",    "ignore",
    "kv_cache_scheme", "dequantize", "run_compressed",      "transform_config", "sparsity_config"};
constexpr std::string_view kGroupKeys[] = {"targets", "weights", "input_activations",
                                           "output_activations", "format"};
constexpr std::string_view kArgumentKeys[] = {
    "num_bits",   "type",        "symmetric",       "strategy", "dynamic",
    "group_size", "scale_dtype", "block_structure", "actorder"};
// How scales were found, and which kernels others use: without effect on what is computed.
constexpr std::string_view kNeutralKeys[] = {"use_optimized_inference",
                                             "global_compression_ratio",
                                             "version",
                                             "observer",
                                             "observer_kwargs",
                                             "zp_dtype"};
constexpr std::string_view kOwnKeys[] = {"quant_method", "description", "groups", "ignore",
                                         "residual"};
constexpr std::string_view kOwnGroupKeys[] = {"targets", "format", "block", "inputs"};

class Reader {
 public:
  Reader(const JsonObject& json, const std::string& where) : json_(json), where_(where) {}

  QuantizationConfig read() {
    const std::string method = json_.string("quant_method");
    if (method == "fp8") {
      read_fp8();
    } else if (method == "compressed-tensors") {
      read_compressed_tensors();
    } else if (method == "octet") {
      read_octet();
    } else {
      bad("quant_method", "fp8, modelopt or compressed-tensors", method);
    }
    return std::move(config_);
  }

 private:
  void note_unknown(const JsonObject& object, const std::string& prefix, KeyList known) {
    for (const auto& [key, value] : object.items()) {
      const bool is_known =
          std::ranges::count(known, key) > 0 || std::ranges::count(kNeutralKeys, key) > 0;
      if (is_known || asks_nothing(value)) continue;
      config_.unknown_keys.push_back(prefix + key);
    }
  }

  [[noreturn]] void bad(std::string_view key, std::string_view expected,
                        std::string_view got) const {
    throw Error(ErrorCode::bad_data, "[config.json] {}: '{}.{}': expected {}, got {}", where_, kKey,
                key, expected, got);
  }

  void expect(const JsonObject& object, const std::string& key, const Json& value) const {
    if (object.has(key) && object.at(key) != value) bad(key, value.dump(), object.at(key).dump());
  }

  // Only the kind of lists and objects, as they may be long.
  static std::string brief(const Json& json) {
    return json.is_structured() ? json.type_name() : json.dump();
  }

  std::string one_of(const JsonObject& object, const std::string& key,
                     const std::vector<std::string>& known) const {
    std::string got = object.string_or(key, known.front());
    if (std::ranges::count(known, got) == 0) {
      bad(key, fmt::format("{}", fmt::join(known, ", ")), Json(got).dump());
    }
    return got;
  }

  BlockShape block_of(const JsonObject& object, const std::string& key) const {
    if (!object.has(key)) return {};
    const Json& block = object.at(key);
    const auto is_extent = [](const Json& x) {
      return x.is_number_unsigned() && x.get<uint64_t>() >= 1 && x.get<uint64_t>() <= kMaxBlock;
    };
    if (!block.is_array() || block.size() != 2 || !std::ranges::all_of(block, is_extent)) {
      bad(key, "two extents of a block", block.is_object() ? "object" : block.dump());
    }
    return {.rows = block[0].get<int64_t>(), .cols = block[1].get<int64_t>()};
  }

  int64_t group_size(const JsonObject& object, const std::string& key) const {
    const int64_t size = object.integer(key);
    if (size < 1 || size > kMaxBlock) bad(key, "from 1 to 1048576", fmt::to_string(size));
    return size;
  }

  // The strategy, where absent as a group's size implies. Others have neither groups nor blocks.
  std::string strategy_of(const JsonObject& arguments,
                          const std::vector<std::string>& known) const {
    const bool implies = arguments.has("group_size") && !arguments.has("strategy");
    const bool is_channel = implies && arguments.at("group_size") == -1;
    std::string strategy = !implies ? one_of(arguments, "strategy", known)
                           : is_channel && std::ranges::count(known, "channel") > 0 ? "channel"
                                                                                    : "group";
    for (const auto& [key, of] : {std::pair("group_size", "group"), {"block_structure", "block"}}) {
      if (arguments.has(key) && strategy != of && arguments.at(key) != -1)
        bad(key, "none with strategy " + strategy, brief(arguments.at(key)));
    }
    if (arguments.has("actorder")) one_of(arguments, "actorder", {"weight", "static"});
    return strategy;
  }

  // As inference servers read it: by block in groups of 128, else one scale for the tensor.
  void read_fp8() {
    std::vector<std::string_view> known(std::begin(kFp8Keys), std::end(kFp8Keys));
    known.insert(known.end(), std::begin(kFp8NeutralKeys), std::end(kFp8NeutralKeys));
    note_unknown(json_, "", known);
    expect(json_, "fmt", "e4m3");
    expect(json_, "expert_dtype", "fp8");
    const BlockShape block = block_of(json_, "weight_block_size");
    const std::string scheme = one_of(json_, "activation_scheme", {"dynamic", "static"});
    ActivationScheme activations{.scaling = ActivationScaling::tensor};
    if (scheme == "static") activations.scaling = ActivationScaling::fixed;
    const bool power = one_of(json_, "scale_fmt", {"float", "ue8m0"}) == "ue8m0";
    if (json_.has("weight_block_size")) {
      activations = {.scaling = ActivationScaling::group, .group = block.cols, .power = power};
    } else if (power) {
      bad("scale_fmt", "float where weight_block_size is absent", "ue8m0");
    }
    if (json_.boolean_or("dequantize", false)) activations = {};
    config_.has_power_blocks = power;
    config_.groups = {{.targets = {}, .block = block, .activations = activations}};
  }

  ActivationScheme inputs_of(const JsonObject& group) const {
    if (!group.has("input_activations")) return {};
    const JsonObject inputs = group.object("input_activations");
    expect(inputs, "num_bits", 8);
    expect(inputs, "symmetric", true);
    ActivationScheme scheme;
    const bool is_int = one_of(inputs, "type", {"int", "float"}) == "int";
    scheme.dtype = is_int ? Dtype::int8 : Dtype::e4m3;
    const std::string strategy = strategy_of(inputs, {"tensor", "token", "group"});
    const bool is_dynamic = inputs.boolean_or("dynamic", false);
    const std::string scale_dtype = inputs.string_or("scale_dtype", "torch.float32");
    scheme.power = scale_dtype == "torch.uint8" && strategy != "tensor";
    if (is_dynamic && !scheme.power && scale_dtype != "torch.float32") {
      bad("scale_dtype", "torch.float32, or torch.uint8 of tokens and groups", scale_dtype);
    }
    if (strategy == "tensor") {
      scheme.scaling = is_dynamic ? ActivationScaling::tensor : ActivationScaling::fixed;
      return scheme;
    }
    if (!is_dynamic) bad("dynamic", "true, with a scale for each token or group", "false");
    scheme.scaling = strategy == "token" ? ActivationScaling::token : ActivationScaling::group;
    if (strategy == "group") scheme.group = group_size(inputs, "group_size");
    return scheme;
  }

  QuantizationGroup read_group(const JsonObject& group, const std::string& name) {
    QuantizationGroup result{
        .targets = patterns_of(group, "targets"), .block = {}, .activations = {}};
    if (!group.has("targets")) result.targets.emplace_back("Linear");
    const std::string prefix = fmt::format("config_groups.{}.", name);
    note_unknown(group, prefix, kGroupKeys);
    for (const char* key : {"weights", "input_activations"}) {
      if (group.has(key)) note_unknown(group.object(key), prefix + key + ".", kArgumentKeys);
    }
    check_format(group);
    const JsonObject weights = group.object("weights");
    expect(weights, "num_bits", 8);
    const bool is_int = one_of(weights, "type", {"float", "int"}) == "int";
    if (weights.has("type")) result.weights = is_int ? Dtype::int8 : Dtype::e4m3;
    expect(weights, "symmetric", true);
    expect(weights, "dynamic", false);
    const std::string strategy = strategy_of(weights, {"tensor", "channel", "group", "block"});
    if (strategy == "block") result.block = block_of(weights, "block_structure");
    if (strategy == "group") result.block = {.rows = 1, .cols = group_size(weights, "group_size")};
    result.activations = inputs_of(group);
    return result;
  }

  std::vector<ModulePattern> patterns_of(const JsonObject& object, const std::string& key) const {
    std::vector<ModulePattern> patterns;
    if (!object.has(key)) return patterns;
    const Json& list = object.at(key);
    for (const Json& one : list.is_array() ? list : Json::array({list})) {
      if (!one.is_string()) bad(key, "names of modules", brief(one));
      try {
        patterns.emplace_back(one.get<std::string>());
      } catch (const Error& error) {
        bad(key, "a regular expression behind 're:'", error.what());
      }
    }
    return patterns;
  }

  void check_format(const JsonObject& object) const {
    if (!object.has("format")) return;
    one_of(object, "format",
           {"float-quantized", "int-quantized", "mxfp8-quantized", "naive-quantized",
            "pack-quantized", "mixed-precision"});
  }

  void read_compressed_tensors() {
    note_unknown(json_, "", kCompressedKeys);
    check_format(json_);
    if (json_.has("transform_config") && !json_.at("transform_config").empty())
      bad("transform_config", "none", "transforms");
    if (json_.has("sparsity_config")) expect_dense(json_.object("sparsity_config"));
    const std::string status = one_of(json_, "quantization_status", {"compressed", "decompressed"});
    config_.is_decompressed = status == "decompressed";
    config_.ignored = patterns_of(json_, "ignore");
    config_.others_are_first = false;
    const JsonObject groups = json_.object("config_groups");
    for (const auto& [name, group] : groups.items()) {
      config_.groups.push_back(read_group(groups.object(name), name));
    }
    if (config_.groups.empty())
      config_.groups.push_back(
          {.targets = {ModulePattern("Linear")}, .block = {}, .activations = {}});
    if (json_.boolean_or("dequantize", !json_.boolean_or("run_compressed", true))) {
      for (QuantizationGroup& group : config_.groups) group.activations = {};
    }
  }

  void expect_dense(const JsonObject& sparsity) const {
    if (sparsity.string_or("format", "dense") != "dense")
      bad("sparsity_config.format", "dense", sparsity.string("format"));
  }

  Dtype dtype_of(const JsonObject& object, const std::string& key) const {
    const std::string name = object.string(key);
    const auto dtype = dtype_from_name(name);
    if (!dtype || !has_codec(*dtype)) bad(key, "an 8-bit format", Json(name).dump());
    return *dtype;
  }

  void read_octet() {
    note_unknown(json_, "", kOwnKeys);
    const Json& groups = json_.at("groups");
    if (!groups.is_array() || groups.empty()) bad("groups", "a list of groups", brief(groups));
    for (const Json& json : groups) {
      const JsonObject group(json, where_);
      note_unknown(group, "groups.", kOwnGroupKeys);
      QuantizationGroup result{
          .targets = patterns_of(group, "targets"), .block = {}, .activations = {}};
      if (group.has("block")) result.block = block_of(group, "block");
      if (group.has("inputs")) result.activations = octet_inputs(group.object("inputs"));
      config_.groups.push_back(std::move(result));
    }
    if (json_.has("residual")) {
      const JsonObject residual = json_.object("residual"), scales = residual.object("scales");
      config_.residual = dtype_of(residual, "format");
      for (const auto& [name, scale] : scales.items()) {
        config_.residual_scales[name] = static_cast<float>(scales.number(name));
      }
    }
  }

  ActivationScheme octet_inputs(const JsonObject& inputs) const {
    ActivationScheme scheme{.dtype = dtype_of(inputs, "format"),
                            .power = inputs.boolean_or("power", false)};
    const std::string scaling =
        one_of(inputs, "scaling", {"none", "fixed", "tensor", "token", "group"});
    scheme.scaling = enum_from_name<ActivationScaling>(scaling).value();
    if (scheme.scaling == ActivationScaling::group) scheme.group = group_size(inputs, "group");
    return scheme;
  }

  const JsonObject& json_;
  const std::string& where_;
  QuantizationConfig config_;
};

}  // namespace

// As Python's re.match: from a name's beginning, not to its end.
ModulePattern::ModulePattern(std::string text) : text_(std::move(text)) {
  constexpr std::string_view kExpression = "re:";
  if (text_.starts_with(kExpression)) {
    kind_ = Kind::expression;
    regex_ =
        std::make_shared<const Regex>(fmt::format("\\A(?:{})", text_.substr(kExpression.size())));
  } else if (text_ == "Linear" || text_ == "Module") {
    kind_ = Kind::linears;
  }
}

bool ModulePattern::matches(std::string_view module) const {
  if (kind_ != Kind::expression) return kind_ == Kind::linears || text_ == module;
  MatchBudget budget = match_budget(module.size());
  bool found = false;
  regex_->for_each(module, budget, [&](const RegexMatch&) { found = true; });
  return found;
}

std::vector<std::string_view> neutral_quantization_keys() {
  return {std::begin(kNeutralKeys), std::end(kNeutralKeys)};
}

std::vector<std::string_view> neutral_fp8_keys() {
  return {std::begin(kFp8NeutralKeys), std::end(kFp8NeutralKeys)};
}

std::optional<QuantizationConfig> parse_quantization_config(const std::string& text,
                                                            const std::string& where) {
  const Json root = modelopt_as_fp8(parse_json(text, where), where);
  const JsonObject json(root, where);
  if (!json.has(kKey)) return std::nullopt;
  return Reader(json.object(kKey), where).read();
}

std::optional<QuantizationConfig> read_quantization_config(const Files& files,
                                                           const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  if (!files.is_directory(folder) || !files.exists(path)) return std::nullopt;
  return parse_quantization_config(config_with_modelopt(files, folder), path);
}

const QuantizationGroup* QuantizationConfig::group_of(std::span<const std::string> names) const {
  const auto is_named_by = [&](const ModulePattern& pattern) {
    return std::ranges::any_of(names, [&](const auto& name) { return pattern.matches(name); });
  };
  if (std::ranges::any_of(ignored, is_named_by)) return nullptr;
  const QuantizationGroup* found = nullptr;
  const ModulePattern* by = nullptr;
  for (const QuantizationGroup& group : groups) {
    for (const ModulePattern& target : group.targets) {
      if (!is_named_by(target) || (by != nullptr && by->is_before(target))) continue;
      found = &group;
      by = &target;
    }
  }
  return found == nullptr && others_are_first ? &groups.front() : found;
}

std::vector<std::string> input_scale_names(std::string_view weight) {
  const std::string module(weight.substr(0, weight.rfind('.')));
  return {module + ".input_scale", module + ".activation_scale"};
}

std::vector<std::string> scale_names(std::string_view weight) {
  return {std::string(weight) + "_scale_inv", std::string(weight) + "_scale"};
}

bool is_quantization_tensor(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {
      ".weight_scale_inv", ".weight_scale", ".weight_shape", ".input_scale", ".activation_scale",
      ".output_scale",     ".k_scale",      ".v_scale",      ".q_scale"};
  return std::ranges::any_of(kSuffixes, [&](auto suffix) { return name.ends_with(suffix); });
}

bool is_unused_scale(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".output_scale", ".k_scale", ".v_scale", ".q_scale"};
  return std::ranges::any_of(kSuffixes, [&](auto suffix) { return name.ends_with(suffix); });
}

std::optional<BlockShape> scaled_block(const std::vector<int64_t>& weight,
                                       const std::vector<int64_t>& scales,
                                       const BlockShape& block) {
  using Extents = std::vector<int64_t>;
  if (weight.size() != 2) return std::nullopt;
  const int64_t rows = weight[0], cols = weight[1];
  if (scales.empty() || scales == Extents{1} || scales == Extents{1, 1}) {
    return BlockShape{.rows = std::max<int64_t>(rows, 1), .cols = std::max<int64_t>(cols, 1)};
  }
  if (scales == Extents{rows} || scales == Extents{rows, 1}) {
    return BlockShape{.rows = 1, .cols = std::max<int64_t>(cols, 1)};
  }
  if (scales == Extents{ceil_div(rows, block.rows), ceil_div(cols, block.cols)}) return block;
  return std::nullopt;
}

}  // namespace octet
