#include "golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "formats/bf16.h"
#include "io/safetensors.h"
#include "nn/hf_config.h"

namespace octet::golden {
namespace {

constexpr std::string_view kFolder = OCTET_SOURCE_DIR "/tests/golden/models";
constexpr std::string_view kExtension = ".safetensors";

using Metadata = std::map<std::string, std::string>;

int64_t integer(const Metadata& meta, const char* key) {
  return std::stoll(meta.at(key));
}
double number(const Metadata& meta, const char* key) {
  return std::stod(meta.at(key));
}

template <typename Enum>
Enum choice(const Metadata& meta, const char* key) {
  for (int i = 0; i < enum_count(Enum{}); ++i) {
    if (enum_name(static_cast<Enum>(i)) == meta.at(key)) return static_cast<Enum>(i);
  }
  throw Error(ErrorCode::bad_data, "[golden] no {} is named '{}'", key, meta.at(key));
}

ModelSpec read_spec(const Metadata& meta) {
  if (meta.contains("config")) return parse_hf_config(meta.at("config"), "config.json");
  const ModelDef* def = find_model(meta.at("kind"));
  CHECK(def != nullptr);
  return {.kind = def->kind,
          .hidden = integer(meta, "hidden"),
          .layers = integer(meta, "layers"),
          .heads = integer(meta, "heads"),
          .kv_heads = integer(meta, "kv_heads"),
          .head_dim = integer(meta, "head_dim"),
          .ffn = integer(meta, "ffn"),
          .vocab = integer(meta, "vocab"),
          .max_positions = integer(meta, "max_positions"),
          .norm_eps = number(meta, "norm_eps"),
          .tied = meta.at("tied") == "true",
          .gelu = choice<GeluKind>(meta, "gelu"),
          .rope_theta = number(meta, "rope_theta"),
          .rope_scaling = choice<RopeScaling>(meta, "rope_scaling"),
          .rope_factor = number(meta, "rope_factor"),
          .rope_low_freq_factor = number(meta, "rope_low_freq_factor"),
          .rope_high_freq_factor = number(meta, "rope_high_freq_factor"),
          .rope_original_max_position = integer(meta, "rope_original_max_position")};
}

template <typename T>
std::vector<double> widen(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return {values.begin(), values.end()};
}

std::vector<double> numbers_of(const std::vector<std::byte>& bytes, SafeDtype stored) {
  if (stored == SafeDtype::i32) return widen<int32_t>(bytes);
  if (stored == SafeDtype::f32) return widen<float>(bytes);
  CHECK(stored == SafeDtype::bf16);
  std::vector<double> values = widen<uint16_t>(bytes);
  for (double& value : values)
    value = static_cast<double>(f32_from_bf16(static_cast<uint16_t>(value)));
  return values;
}

}  // namespace

const std::vector<double>& Golden::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw Error(ErrorCode::bad_data, "[golden] no tensor {}", name);
  return found->second;
}

std::map<std::string, std::vector<double>> Golden::inputs() const {
  std::map<std::string, std::vector<double>> inputs;
  for (const auto& [name, values] : tensors) {
    if (name.starts_with("w:")) inputs[name.substr(2)] = values;
  }
  inputs["tokens"] = at("tokens");
  inputs["labels"] = at("labels");
  const auto n_valid = std::count_if(at("labels").begin(), at("labels").end(),
                                     [](double label) { return label >= 0; });
  inputs["inv_n"] = {1.0 / static_cast<double>(n_valid)};
  for (int64_t row = 0; row < batch.batch * batch.seq; ++row) {
    inputs["positions"].push_back(static_cast<double>(row % batch.seq));
  }
  return inputs;
}

Golden load_golden(const std::string& name) {
  const std::string path = fmt::format("{}/{}{}", kFolder, name, kExtension);
  const auto reader = SafetensorsReader::open(posix_files(), path);
  const Metadata& meta = reader.metadata();
  Golden golden{.spec = read_spec(meta),
                .batch = {.batch = integer(meta, "batch"), .seq = integer(meta, "seq")},
                .lr = number(meta, "lr"),
                .beta1 = number(meta, "beta1"),
                .beta2 = number(meta, "beta2"),
                .eps = number(meta, "eps"),
                .weight_decay = number(meta, "weight_decay"),
                .tensors = {},
                .shapes = {}};
  for (const StoredTensor& tensor : reader.tensors()) {
    golden.tensors[tensor.name] = numbers_of(reader.read(tensor.name), tensor.stored);
    golden.shapes[tensor.name] = tensor.shape;
  }
  return golden;
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : posix_files().list(std::string(kFolder))) {
    if (!entry.name.ends_with(kExtension)) continue;
    names.push_back(entry.name.substr(0, entry.name.size() - kExtension.size()));
  }
  return names;
}

double relative_distance(const std::vector<double>& got, const std::vector<double>& expected) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  if (got.size() != expected.size()) return kFar;
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return kFar;
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(got[i] - expected[i]));
  }
  return largest > 0 ? difference / largest : kFar;
}

}  // namespace octet::golden
