#include "infer/weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/integer.h"
#include "base/thread_pool.h"
#include "formats/arrays.h"
#include "infer/adapter_note.h"
#include "infer/matrix_quantizer.h"
#include "infer/merged_weights.h"
#include "infer/tensor_streams.h"
#include "nn/head_parameters.h"
#include "nn/hf_names.h"

namespace octet {
namespace {

constexpr int64_t kMinPiece = 8 << 10, kMaxPiece = 512 << 10;  // elements
constexpr size_t kRawBytes = 64 << 10;                         // of a file, at a time

[[noreturn]] void bad_tensor(const ModelFiles& files, const std::string& stored,
                             const std::string& expected, std::string_view got) {
  throw Error(ErrorCode::bad_data, "[weights] {}: '{}' must be {}, got {}", files.path(), stored,
              expected, got);
}

void check_tensor(const ModelFiles& files, const ParameterSpec& parameter,
                  const std::string& stored) {
  const StoredTensor& tensor = files.at(stored);
  const bool is_as_in_files = !parameter.file_shape.empty() && tensor.shape == parameter.file_shape;
  if (tensor.shape != parameter.shape && !is_as_in_files) {
    bad_tensor(files, stored, to_string(parameter.shape), to_string(tensor.shape));
  }
  if (!tensor.dtype || !is_format(*tensor.dtype)) {
    if (tensor.stored == SafeDtype::f32) return;
    bad_tensor(files, stored, "F32, BF16, F16, F8_E4M3, F8_E5M2, I8, or U8 that the metadata name",
               safe_dtype_name(tensor.stored));
  }
}

bool is_quantized(const StoredTensor& tensor) {
  return tensor.dtype && octet::is_quantized(*tensor.dtype);
}

}  // namespace

WeightReader::WeightReader(const Files& files, const WeightPath& where, const ModelSpec& spec,
                           NonfiniteWeights nonfinite, HeadWeights head)
    : nonfinite_(nonfinite), files_(ModelFiles::open(files, where.path)) {
  const std::string& path = where.path;
  if (!where.adapter.empty()) {
    merged_ = std::make_shared<const MergedWeights>(files, where, spec, nonfinite);
    return;
  }
  if (const auto note = find_adapter_note(files, path)) {
    merged_ = std::make_shared<const MergedWeights>(files, *note, path, spec, nonfinite);
    return;
  }
  find_parameters(
      spec, read_quantization_config(files, path).value_or(QuantizationConfig{.groups = {{}}}),
      head);
}

WeightReader::WeightReader(ModelFiles files, const ModelSpec& spec, NonfiniteWeights nonfinite)
    : nonfinite_(nonfinite), files_(std::move(files)) {
  find_parameters(spec, {}, HeadWeights::all_stored);
}

void WeightReader::find_parameters(const ModelSpec& spec, const QuantizationConfig& quantization,
                                   HeadWeights head) {
  for (const std::string& stored : files_.names()) {
    std::optional<std::string> name = parameter_name(spec, stored);
    if (!name) continue;
    if (name->ends_with(kPackedSuffix))
      name->replace(name->size() - kPackedSuffix.size(), std::string::npos, ".weight");
    const bool is_beside = is_quantization_tensor(stored);
    const auto [other, is_new] = (is_beside ? beside_ : stored_name_).emplace(*name, stored);
    if (!is_new) {
      throw Error(ErrorCode::bad_data, "[weights] {}: '{}' and '{}' are one parameter, '{}'",
                  files_.path(), other->second, stored, *name);
    }
  }
  find_tied_embedding(spec);
  for (const auto& [sum, scale] : quantization.residual_scales) {
    inputs_.residuals[sum] = {.dtype = quantization.residual, .scale = scale};
  }
  check_decompressed(spec, quantization);
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  if (spec.folded_norms)
    norms_ = FoldedNorms(files_, spec, nonfinite_ == NonfiniteWeights::refused, stored_name_);
  if (head == HeadWeights::may_be_new) find_new_parameters(spec, parameters);
  expect_all_stored(parameters);
  for (const ParameterSpec& parameter : parameters) {
    if (!new_.contains(parameter.name)) add_parameter(spec, parameter, quantization);
  }
  if (stored_name_.size() + new_.size() == parameters.size()) return;
  for (const ParameterSpec& parameter : parameters) stored_name_.erase(parameter.name);
  const std::string& extra = stored_name_.begin()->second;
  throw Error(ErrorCode::bad_data, "[weights] {}: '{}' is of no parameter of the model, kind {}",
              files_.file_of(extra), extra, model_def(spec.kind).name);
}

// Files may name what is shared by another of its names: safetensors' save_model keeps the first.
void WeightReader::find_tied_embedding(const ModelSpec& spec) {
  const std::string embedding = model_parameters(spec).front().name;
  if (stored_name_.contains(embedding)) return;
  ModelSpec untied = spec;
  untied.tied = false;
  for (const std::string& stored : files_.names()) {
    const bool is_tied_head =
        spec.tied && parameter_name(untied, stored) == model_def(spec.kind).head;
    if (is_tied_head || copied_parameter(spec, stored) == embedding)
      stored_name_.emplace(embedding, stored);
  }
}

// An error says what stands in the file in a missing parameter's place: of the names that the model
// has not, the one that begins most like it.
void WeightReader::expect_all_stored(std::span<const ParameterSpec> parameters) const {
  const auto missing = std::ranges::find_if(parameters, [&](const ParameterSpec& one) {
    return !new_.contains(one.name) && !stored_name_.contains(one.name);
  });
  if (missing == parameters.end()) return;
  std::map<std::string, std::string> others = stored_name_;
  for (const ParameterSpec& one : parameters) others.erase(one.name);
  std::string instead = "none";
  if (!others.empty()) {
    const auto likeness = [&](const auto& entry) {
      return std::ranges::mismatch(entry.first, missing->name).in1 - entry.first.begin();
    };
    const auto nearest = std::ranges::max_element(others, {}, likeness);
    instead = fmt::format("none, but '{}' (of {} that the model has not)", nearest->second,
                          others.size());
  }
  throw Error(ErrorCode::bad_data, "[weights] {}: expected a tensor '{}', got {}", files_.path(),
              missing->name, instead);
}

// Parameters that the model has beside one that is read for its features, where the files lack them
// or hold those of another head.
void WeightReader::find_new_parameters(const ModelSpec& spec,
                                       std::span<const ParameterSpec> parameters) {
  std::set<std::string> known = feature_parameters(spec);
  for (const ParameterSpec& parameter : parameters) {
    if (!known.insert(parameter.name).second) continue;
    const auto at = stored_name_.find(parameter.name);
    const bool is_stored =
        at != stored_name_.end() && files_.at(at->second).shape == parameter.shape;
    if (is_stored) continue;
    new_.insert(parameter.name);
    if (at != stored_name_.end()) stored_name_.erase(at);
  }
  const ModelDef& def = model_def(spec.kind);
  std::erase_if(stored_name_, [&](const auto& entry) {
    return !known.contains(entry.first) && is_head_name(def, entry.first);
  });
}

void WeightReader::add_parameter(const ModelSpec& spec, const ParameterSpec& parameter,
                                 const QuantizationConfig& config) {
  const auto at = stored_name_.find(parameter.name);
  CHECK(at != stored_name_.end());
  if (at->second.ends_with(kPackedSuffix) && parameter.shape.size() == 2) {
    packed_.emplace(parameter.name, PackedWeight(files_, at->second, parameter.shape));
  } else {
    check_tensor(files_, parameter, at->second);
  }
  const bool is_as_in_files = files_.at(at->second).shape == parameter.file_shape;
  if (const auto order = channel_order(parameter); order && is_as_in_files)
    orders_.emplace(parameter.name, *order);
  const StoredTensor& tensor = stored(parameter.name);
  if (!is_quantized(tensor) && !config.is_decompressed) {
    for (const std::string& scales : scale_names(tensor.name)) {
      if (files_.find(scales) == nullptr) continue;
      throw Error(ErrorCode::bad_data,
                  "[weights] {}: '{}' is {}: expected no scales beside it, as no "
                  "quantization_config says 'decompressed', got '{}'",
                  files_.path(), tensor.name, safe_dtype_name(tensor.stored), scales);
    }
  }
  if (!is_quantized(tensor) && !(config.is_decompressed && is_linear(parameter))) return;
  const QuantizationGroup* group = config.group_of(module_names(spec, parameter.name));
  if (!is_quantized(tensor)) {
    if (group != nullptr) add_input(parameter.name, group->activations);
    return;
  }
  if (group == nullptr || config.is_decompressed) {
    bad_tensor(files_, tensor.name,
               fmt::format("F32, BF16 or F16, as quantization_config {}",
                           group == nullptr ? "has no target for it" : "says 'decompressed'"),
               safe_dtype_name(tensor.stored));
  }
  if (group->weights && tensor.dtype != group->weights) {
    bad_tensor(files_, tensor.name,
               fmt::format("{}, as the weights.type of its group says",
                           *group->weights == Dtype::int8 ? "I8" : "F8_E4M3"),
               safe_dtype_name(tensor.stored));
  }
  add_scales(parameter.name, tensor, *group);
  add_input(parameter.name, group->activations);
}

// Refuses what other programs quantize, and this reader cannot, of a model without 8-bit weights.
void WeightReader::check_decompressed(const ModelSpec& spec,
                                      const QuantizationConfig& config) const {
  if (!config.is_decompressed) return;
  const ModelDef& def = model_def(spec.kind);
  const QuantizationGroup* of_head = config.group_of(module_names(spec, def.head));
  const bool is_head_quantized =
      spec.tied && of_head != nullptr && of_head->activations.scaling != ActivationScaling::none;
  if (def.plain_linears && !is_head_quantized) return;
  throw Error(ErrorCode::bad_data,
              "[weights] {}: quantization_status 'decompressed' is read of models with plain "
              "linears whose tied head is in 'ignore'",
              files_.path());
}

const StoredTensor& WeightReader::only_one(const std::vector<std::string>& names,
                                           std::string_view expected, std::string_view none) const {
  const StoredTensor *one = files_.find(names[0]), *other = files_.find(names[1]);
  if ((one == nullptr) != (other == nullptr)) return one == nullptr ? *other : *one;
  throw Error(ErrorCode::bad_data, "[weights] {}: {} in '{}' or '{}', got {}", files_.path(),
              expected, names[0], names[1], one == nullptr ? none : "both");
}

void WeightReader::add_scales(const std::string& parameter, const StoredTensor& weight,
                              const QuantizationGroup& group) {
  const std::string expected =
      fmt::format("'{}' is {}: expected its scales", weight.name, safe_dtype_name(weight.stored));
  const StoredTensor& tensor = only_one(scale_names(weight.name), expected, "neither");
  const auto covered = scaled_block(weight.shape, tensor.shape, group.block);
  if (!covered) {
    bad_tensor(files_, tensor.name, fmt::format("the scales of {}", to_string(weight.shape)),
               to_string(tensor.shape));
  }
  scales_.emplace(parameter, Scales{tensor, *covered, read_scales(tensor)});
}

// Powers of two are bytes, with a name of their own in newer files alone.
std::vector<float> WeightReader::read_scales(const StoredTensor& tensor) const {
  const SafeDtype stored = tensor.stored;
  const bool is_power = stored == SafeDtype::u8 || stored == SafeDtype::f8_e8m0;
  if (!is_power && stored != SafeDtype::f32 && stored != SafeDtype::bf16 &&
      stored != SafeDtype::f16) {
    bad_tensor(files_, tensor.name, "F32, BF16, F16, F8_E8M0 or U8", safe_dtype_name(stored));
  }
  return decode_values(is_power ? Dtype::e8m0 : native_dtype(stored).value(),
                       files_.read(tensor.name));
}

void WeightReader::add_input(const std::string& parameter, const ActivationScheme& scheme) {
  if (scheme.scaling == ActivationScaling::none) return;
  ActivationQuantizer input{.dtype = scheme.dtype,
                            .target = static_cast<double>(find_format(scheme.dtype).amax_target),
                            .power = scheme.power};
  if (scheme.scaling == ActivationScaling::group) input.group = scheme.group;
  if (scheme.scaling == ActivationScaling::token) input.group = kWholeRow;
  if (scheme.scaling == ActivationScaling::fixed) input.scale = read_input_scale(parameter);
  inputs_.linears.emplace(parameter, input);
}

float WeightReader::read_input_scale(const std::string& parameter) const {
  const StoredTensor& tensor =
      only_one(input_scale_names(stored(parameter).name), "expected the scale of an input", "none");
  const std::vector<float> values = read_scales(tensor);
  if (values.size() == 1 && values[0] > 0 && std::isfinite(values[0])) return values[0];
  throw Error(ErrorCode::bad_data, "[weights] {}: '{}' must be one scale above 0, got {} values",
              files_.path(), tensor.name, values.size());
}

const StoredTensor& WeightReader::stored(const std::string& parameter) const {
  if (merged_) return merged_->stored(parameter);
  const auto packed = packed_.find(parameter);
  if (packed != packed_.end()) return packed->second.unpacked();
  return files_.at(stored_name_.at(parameter));
}

void WeightReader::read_stored(const std::string& parameter, std::span<std::byte> out,
                               uint64_t first) const {
  read_unchecked(parameter, out, first);
  if (nonfinite_ == NonfiniteWeights::allowed) return;
  const Dtype dtype = stored(parameter).dtype.value();
  const auto width = static_cast<size_t>(bytes_of(dtype, 1));
  std::vector<float> values;
  for (size_t i = 0; i < out.size(); i += kRawBytes) {
    const auto bytes = out.subspan(i, std::min(kRawBytes, out.size() - i));
    if (is_surely_finite(dtype, bytes)) continue;
    values.resize(bytes.size() / width);
    decode_values(dtype, bytes, values);
    check_finite(parameter, static_cast<int64_t>((first + i) / width), values);
  }
}

void WeightReader::read_unchecked(const std::string& parameter, std::span<std::byte> out,
                                  uint64_t first) const {
  if (merged_) return merged_->read_stored(parameter, out, first);
  const auto packed = packed_.find(parameter);
  if (packed != packed_.end()) return packed->second.read(files_, out, first);
  files_.read(stored_name_.at(parameter), out, first);
}

void WeightReader::check_finite(const std::string& parameter, int64_t first,
                                std::span<const float> values, Dtype dtype) const {
  if (nonfinite_ == NonfiniteWeights::refused)
    check_finite_values(files_.path(), stored(parameter), first, values, dtype);
}

std::string WeightReader::packed_name(const std::string& parameter) const {
  return packed_.contains(parameter) ? stored_name_.at(parameter) : "";
}

const WeightReader::Scales* WeightReader::scales(const std::string& parameter) const {
  const auto at = scales_.find(parameter);
  return at == scales_.end() ? nullptr : &at->second;
}

std::vector<float> WeightReader::read(const std::string& parameter) const {
  const StoredTensor& tensor = stored(parameter);
  std::vector<float> values(tensor.n_bytes() / static_cast<uint64_t>(element_width(tensor.stored)));
  read(parameter, 0, values);
  return values;
}

void WeightReader::read(const std::string& parameter, int64_t first, std::span<float> out) const {
  if (merged_) {
    merged_->read(parameter, first, out);
    return check_finite(parameter, first, out);
  }
  const auto read = [&](int64_t at, std::span<float> part) {
    read_in_file_order(parameter, at, part);
  };
  const auto order = orders_.find(parameter);
  if (order == orders_.end()) {
    read(first, out);
  } else {
    read_in_memory_order(order->second, first, out, read);
  }
  if (!norms_.changes(parameter)) return;
  norms_.apply(parameter, first, out);
  check_finite(parameter, first, out);
}

void WeightReader::read_in_file_order(const std::string& parameter, int64_t first,
                                      std::span<float> out) const {
  const StoredTensor& tensor = stored(parameter);
  const auto width = static_cast<size_t>(element_width(tensor.stored));
  std::vector<std::byte> raw(std::min(kRawBytes, out.size() * width));
  const size_t step = kRawBytes / width;
  for (size_t i = 0; i < out.size(); i += step) {
    const auto part = out.subspan(i, std::min(step, out.size() - i));
    const auto bytes = std::span(raw).first(part.size() * width);
    read_unchecked(parameter, bytes, (static_cast<uint64_t>(first) + i) * width);
    decode_values(*tensor.dtype, bytes, part);
  }
  if (const Scales* scaled = scales(parameter)) {
    for_each_scale_run(scaled->block, tensor.shape.at(1), first, std::ssize(out),
                       [&](size_t at, size_t begin, size_t end) {
                         const float scale = scaled->values[at];
                         for (float& value : out.subspan(begin, end - begin)) value *= scale;
                       });
  }
  check_finite(parameter, first, out);
}

void read_in_pieces(const WeightReader& weights, std::span<const ParameterSpec> parameters,
                    int n_threads, const std::function<void(const WeightPiece&)>& take) {
  ThreadPool pool(n_threads);
  int64_t largest = 0;
  for (const ParameterSpec& parameter : parameters) {
    largest = std::max(largest, n_elems(parameter.shape));
  }
  const int64_t step = std::clamp(largest / (4 * pool.n_threads()), kMinPiece, kMaxPiece);
  struct Piece {
    const ParameterSpec* parameter;
    int64_t first, n;
  };
  std::vector<Piece> pieces;
  for (const ParameterSpec& parameter : parameters) {
    const int64_t n = n_elems(parameter.shape);
    for (int64_t i = 0; i < n; i += step) pieces.push_back({&parameter, i, std::min(step, n - i)});
  }
  std::vector<std::vector<float>> buffers(static_cast<size_t>(pool.n_threads()));
  pool.run(std::ssize(pieces), [&](int64_t i, int thread) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    std::vector<float>& buffer = buffers[static_cast<size_t>(thread)];
    buffer.resize(static_cast<size_t>(piece.n));
    weights.read(piece.parameter->name, piece.first, buffer);
    take({*piece.parameter, piece.first, buffer, thread});
  });
}

}  // namespace octet
