#include "io/quantization_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "base/json.h"
#include "base/named_enum.h"
#include "formats/table.h"

namespace octet {
namespace {

constexpr const char* kKey = "quantization_config";
constexpr int64_t kMaxBlock = 1 << 20;

class Reader {
 public:
  Reader(const JsonObject& json, const std::string& where) : json_(json), where_(where) {}

  QuantizationConfig read() {
    const std::string method = json_.string("quant_method");
    if (method == "fp8") return read_fp8();
    if (method == "compressed-tensors") return read_compressed_tensors();
    if (method == "octet") return read_octet();
    bad("quant_method", "fp8 or compressed-tensors", method);
  }

 private:
  [[noreturn]] void bad(std::string_view key, std::string_view expected,
                        std::string_view got) const {
    throw Error(ErrorCode::bad_data, "[config.json] {}: '{}.{}': expected {}, got {}", where_, kKey,
                key, expected, got);
  }

  void expect(const JsonObject& object, const std::string& key, const Json& value) const {
    if (object.has(key) && object.at(key) != value) bad(key, value.dump(), object.at(key).dump());
  }

  // Of lists and objects their kind alone, as they may be long.
  static std::string brief(const Json& json) {
    return json.is_structured() ? json.type_name() : json.dump();
  }

  std::string one_of(const JsonObject& object, const std::string& key,
                     const std::vector<std::string>& known) const {
    const std::string got = object.string_or(key, known.front());
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

  // As inference servers read it: by block in groups of 128, else one scale for the tensor.
  QuantizationConfig read_fp8() const {
    expect(json_, "fmt", "e4m3");
    const BlockShape block = block_of(json_, "weight_block_size");
    const std::string scheme = one_of(json_, "activation_scheme", {"dynamic", "static"});
    ActivationScheme activations{.scaling = ActivationScaling::tensor};
    if (scheme == "static") activations.scaling = ActivationScaling::fixed;
    if (json_.has("weight_block_size")) {
      activations = {.scaling = ActivationScaling::group, .group = block.cols};
    }
    return {.groups = {{.targets = {}, .block = block, .activations = activations}}};
  }

  ActivationScheme inputs_of(const JsonObject& group) const {
    if (!group.has("input_activations")) return {};
    const JsonObject inputs = group.object("input_activations");
    expect(inputs, "num_bits", 8);
    expect(inputs, "symmetric", true);
    ActivationScheme scheme;
    const bool is_int = one_of(inputs, "type", {"int", "float"}) == "int";
    scheme.dtype = is_int ? Dtype::int8 : Dtype::e4m3;
    const std::string strategy = one_of(inputs, "strategy", {"tensor", "token", "group"});
    const bool is_dynamic =
        inputs.has("dynamic") && inputs.at("dynamic") != Json(false);  // true, "local"
    if (strategy == "tensor") {
      scheme.scaling = is_dynamic ? ActivationScaling::tensor : ActivationScaling::fixed;
      return scheme;
    }
    if (!is_dynamic) bad("dynamic", "true, with a scale for each token or group", "false");
    scheme.scaling = strategy == "token" ? ActivationScaling::token : ActivationScaling::group;
    if (strategy == "group") scheme.group = group_size(inputs, "group_size");
    scheme.power = inputs.string_or("scale_dtype", "") == "torch.uint8";
    return scheme;
  }

  QuantizationGroup read_group(const JsonObject& group) const {
    QuantizationGroup result{.targets = targets_of(group), .block = {}, .activations = {}};
    check_format(group);
    const JsonObject weights = group.object("weights");
    expect(weights, "num_bits", 8);
    one_of(weights, "type", {"float", "int"});
    expect(weights, "symmetric", true);
    expect(weights, "dynamic", false);
    const std::string strategy =
        one_of(weights, "strategy", {"tensor", "channel", "group", "block"});
    if (strategy == "block") result.block = block_of(weights, "block_structure");
    if (strategy == "group") result.block = {.rows = 1, .cols = group_size(weights, "group_size")};
    result.activations = inputs_of(group);
    return result;
  }

  std::vector<std::string> targets_of(const JsonObject& group) const {
    std::vector<std::string> targets;
    if (!group.has("targets")) return targets;
    const Json& list = group.at("targets");
    for (const Json& target : list.is_array() ? list : Json::array({list})) {
      if (!target.is_string()) bad("targets", "names of modules", brief(target));
      targets.push_back(target.get<std::string>());
    }
    return targets;
  }

  void check_format(const JsonObject& object) const {
    if (!object.has("format")) return;
    one_of(object, "format",
           {"float-quantized", "int-quantized", "mxfp8-quantized", "naive-quantized",
            "pack-quantized", "mixed-precision"});
  }

  QuantizationConfig read_compressed_tensors() const {
    check_format(json_);
    expect(json_, "quantization_status", "compressed");
    QuantizationConfig config;
    const JsonObject groups = json_.object("config_groups");
    for (const auto& [name, group] : groups.items()) {
      config.groups.push_back(read_group(groups.object(name)));
    }
    if (config.groups.empty()) config.groups.emplace_back();
    for (const QuantizationGroup& group : config.groups) {
      for (const std::string& target : group.targets) {
        if (config.groups.size() > 1 && target.starts_with("re:")) {
          bad("targets", "names of modules where groups are several", "a regular expression");
        }
      }
    }
    return config;
  }

  Dtype dtype_of(const JsonObject& object, const std::string& key) const {
    const std::string name = object.string(key);
    const auto dtype = dtype_from_name(name);
    if (!dtype || !has_codec(*dtype)) bad(key, "an 8-bit format", Json(name).dump());
    return *dtype;
  }

  QuantizationConfig read_octet() const {
    QuantizationConfig config;
    const Json& groups = json_.at("groups");
    if (!groups.is_array() || groups.empty()) bad("groups", "a list of groups", brief(groups));
    for (const Json& json : groups) {
      const JsonObject group(json, where_);
      QuantizationGroup result{.targets = targets_of(group), .block = {}, .activations = {}};
      if (group.has("block")) result.block = block_of(group, "block");
      if (group.has("inputs")) result.activations = octet_inputs(group.object("inputs"));
      config.groups.push_back(std::move(result));
    }
    if (json_.has("residual")) {
      const JsonObject residual = json_.object("residual"), scales = residual.object("scales");
      config.residual = dtype_of(residual, "format");
      for (const auto& [name, scale] : scales.items()) {
        config.residual_scales[name] = static_cast<float>(scales.number(name));
      }
    }
    return config;
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
};

bool is_target(const std::string& target, std::string_view module) {
  return target == "Linear" || target == module;
}

}  // namespace

std::optional<QuantizationConfig> parse_quantization_config(const std::string& text,
                                                            const std::string& where) {
  const Json root = parse_json(text, where);
  const JsonObject json(root, where);
  if (!json.has(kKey)) return std::nullopt;
  return Reader(json.object(kKey), where).read();
}

std::optional<QuantizationConfig> read_quantization_config(const Files& files,
                                                           const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  if (!files.is_directory(folder) || !files.exists(path)) return std::nullopt;
  return parse_quantization_config(files.read_text(path), path);
}

const QuantizationGroup& QuantizationConfig::group_of(std::string_view weight) const {
  const std::string_view module = weight.substr(0, weight.rfind('.'));
  for (const QuantizationGroup& group : groups) {
    if (std::ranges::any_of(group.targets, [&](auto& t) { return is_target(t, module); })) {
      return group;
    }
  }
  return groups.front();
}

std::string input_scale_name(std::string_view weight) {
  return fmt::format("{}.input_scale", weight.substr(0, weight.rfind('.')));
}

std::vector<std::string> scale_names(std::string_view weight) {
  return {std::string(weight) + "_scale_inv", std::string(weight) + "_scale"};
}

bool is_quantization_tensor(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".weight_scale_inv", ".weight_scale", ".weight_shape",
                                            ".input_scale",      ".output_scale", ".k_scale",
                                            ".v_scale",          ".q_scale"};
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
