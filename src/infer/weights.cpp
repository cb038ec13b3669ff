#include "infer/weights.h"

#include <cstring>

#include "base/error.h"
#include "formats/codec.h"
#include "nn/hf_names.h"

namespace octet {
namespace {

void check_tensor(const ModelFiles& files, const ParameterSpec& parameter,
                  const std::string& stored) {
  const StoredTensor& tensor = files.at(stored);
  if (tensor.shape != parameter.shape) {
    throw Error(ErrorCode::bad_data, "[weights] {}: '{}' must be {}, got {}", files.path(), stored,
                to_string(parameter.shape), to_string(tensor.shape));
  }
  const SafeDtype dtype = tensor.stored;
  if (dtype != SafeDtype::f32 && dtype != SafeDtype::bf16 && dtype != SafeDtype::f16) {
    throw Error(ErrorCode::bad_data, "[weights] {}: '{}' must be F32, BF16 or F16, got {}",
                files.path(), stored, safe_dtype_name(dtype));
  }
}

template <Dtype D>
std::vector<float> widen(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, bytes.data() + 2 * i, 2);
    values[i] = decode<D>(code);
  }
  return values;
}

}  // namespace

WeightReader::WeightReader(const Files& files, const std::string& path, const ModelSpec& spec)
    : files_(ModelFiles::open(files, path)) {
  for (const std::string& stored : files_.names()) {
    const std::optional<std::string> name = parameter_name(spec, stored);
    if (!name) continue;
    const auto [other, is_new] = stored_name_.emplace(*name, stored);
    if (!is_new) {
      throw Error(ErrorCode::bad_data, "[weights] {}: '{}' and '{}' are one parameter, '{}'", path,
                  other->second, stored, *name);
    }
  }
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  for (const ParameterSpec& parameter : parameters) {
    const auto stored = stored_name_.find(parameter.name);
    if (stored == stored_name_.end()) {
      throw Error(ErrorCode::bad_data, "[weights] {}: expected a tensor '{}', got none", path,
                  parameter.name);
    }
    check_tensor(files_, parameter, stored->second);
  }
  if (stored_name_.size() == parameters.size()) return;
  for (const ParameterSpec& parameter : parameters) stored_name_.erase(parameter.name);
  throw Error(ErrorCode::bad_data, "[weights] {}: the model has no parameter '{}'", path,
              stored_name_.begin()->first);
}

std::vector<float> WeightReader::read(const std::string& parameter) const {
  const std::string& stored = stored_name_.at(parameter);
  const std::vector<std::byte> bytes = files_.read(stored);
  switch (files_.at(stored).stored) {
    case SafeDtype::bf16:
      return widen<Dtype::bf16>(bytes);
    case SafeDtype::f16:
      return widen<Dtype::fp16>(bytes);
    default:
      break;
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace octet
