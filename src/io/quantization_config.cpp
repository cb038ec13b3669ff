#include "io/quantization_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "base/json.h"

namespace octet {
namespace {

constexpr const char* kKey = "quantization_config";
constexpr int64_t kMostBlock = 1 << 20;

class Reader {
 public:
  Reader(const JsonObject& json, const std::string& where) : json_(json), where_(where) {}

  QuantizationConfig read() {
    const std::string method = json_.string("quant_method");
    if (method == "fp8") return read_fp8();
    if (method == "compressed-tensors") return read_compressed_tensors();
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

  BlockShape block_of(const JsonObject& object, const std::string& key) const {
    if (!object.has(key)) return {};
    const Json& block = object.at(key);
    const auto is_extent = [](const Json& x) {
      return x.is_number_unsigned() && x.get<uint64_t>() >= 1 && x.get<uint64_t>() <= kMostBlock;
    };
    if (!block.is_array() || block.size() != 2 || !std::ranges::all_of(block, is_extent)) {
      bad(key, "two extents of a block", block.is_object() ? "object" : block.dump());
    }
    return {.rows = block[0].get<int64_t>(), .cols = block[1].get<int64_t>()};
  }

  QuantizationConfig read_fp8() const {
    expect(json_, "fmt", "e4m3");
    return {.block = block_of(json_, "weight_block_size")};
  }

  QuantizationConfig read_compressed_tensors() const {
    expect(json_, "format", "float-quantized");
    expect(json_, "quantization_status", "compressed");
    QuantizationConfig config;
    const JsonObject groups = json_.object("config_groups");
    for (const auto& [name, group] : groups.items()) {
      const JsonObject weights = groups.object(name).object("weights");
      expect(weights, "num_bits", 8);
      expect(weights, "type", "float");
      expect(weights, "symmetric", true);
      expect(weights, "dynamic", false);
      const std::string strategy = weights.string_or("strategy", "tensor");
      if (strategy != "tensor" && strategy != "channel" && strategy != "block") {
        bad("strategy", "tensor, channel or block", Json(strategy).dump());
      }
      if (strategy == "block") config.block = block_of(weights, "block_structure");
    }
    return config;
  }

  const JsonObject& json_;
  const std::string& where_;
};

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

std::vector<std::string> scale_names(std::string_view weight) {
  return {std::string(weight) + "_scale_inv", std::string(weight) + "_scale"};
}

bool is_quantization_tensor(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".weight_scale_inv", ".weight_scale", ".input_scale",
                                            ".output_scale",     ".k_scale",      ".v_scale",
                                            ".q_scale"};
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
