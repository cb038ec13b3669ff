#include "infer/merged_weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/integer.h"
#include "formats/codec.h"
#include "formats/quantize.h"
#include "infer/inference.h"

namespace octet {
namespace {

constexpr size_t kMostRecent = 4;

Graph forward_graph(const ModelSpec& spec) {
  return build_model(spec, {.batch = 1, .seq = 1}, ModelOutputs::logits).graph;
}

Quantizer quantizer_of(FrozenFormat format) {
  const bool in_blocks = format == FrozenFormat::e4m3_blocks;
  const Granularity granularity = {in_blocks ? Granularity::Kind::block : Granularity::Kind::tensor,
                                   in_blocks ? kFrozenBlock : 0};
  Quantizer quantizer = linear_quantizer(frozen_dtype(format), granularity);
  if (in_blocks) quantizer.scale_type = Dtype::bf16;
  return quantizer;
}

void round_to(Dtype dtype, std::span<float> values) {
  if (dtype == Dtype::f32) return;
  visit_format(dtype, [&]<Dtype D>() {
    for (float& value : values) value = decode<D>(encode<D>(value, Rounding::rne));
  });
}

}  // namespace

FrozenMatrix freeze(FrozenFormat format, const Shape& shape, std::span<const float> values,
                    const std::string& name) {
  const Quantizer quantizer = quantizer_of(format);
  const MatrixShape matrix = {shape.at(0), shape.at(1)};
  const MatrixShape grid = scale_shape(matrix, quantizer.granularity);
  FrozenMatrix frozen;
  frozen.data.resize(values.size());
  frozen.scales.resize(static_cast<size_t>(grid.n_elems()));
  if (quantize(quantizer, matrix, values, frozen.data, frozen.scales)) {
    throw Error(ErrorCode::bad_data, "[weights] '{}': expected finite weights, got NaN or Inf",
                name);
  }
  return frozen;
}

std::set<std::string> frozen_matrices(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const LoraAdapter& linear :
       lora_adapters(forward_graph(spec), {.rank = 1, .targets = {"*"}})) {
    names.insert(linear.weight());
  }
  return names;
}

MergedWeights::MergedWeights(const Files& files, const AdapterNote& note,
                             const std::string& adapters, const ModelSpec& spec)
    : note_(note), base_(files, note.base, spec), adapters_(ModelFiles::open(files, adapters)) {
  if (weights_hash(base_, spec) != note.base_hash) {
    throw Error(ErrorCode::bad_data,
                "[lora] '{}': expected the base that the adapters of {} were trained on ({}), got "
                "other weights",
                note.base, adapters, note.base_hash);
  }
  if (is_quantized(note.frozen)) frozen_ = frozen_matrices(spec);
  for (LoraAdapter& adapter : lora_adapters(forward_graph(spec), note.lora)) {
    factor(adapter.a(), {note.lora.rank, adapter.n_in});
    factor(adapter.b(), {adapter.n_out, note.lora.rank});
    const std::string weight = adapter.weight();
    by_weight_.emplace(weight, std::move(adapter));
  }
  for (const ParameterSpec& parameter : model_parameters(spec)) {
    StoredTensor tensor;
    static_cast<TensorDecl&>(tensor) = tensor_decl(parameter.name, note.compute, parameter.shape);
    stored_.emplace(parameter.name, std::move(tensor));
  }
}

std::vector<float> MergedWeights::factor(const std::string& name, const Shape& shape) const {
  const StoredTensor& tensor = adapters_.at(name);
  const auto dtype = native_dtype(tensor.stored);
  const bool is_wide =
      dtype && (*dtype == Dtype::f32 || *dtype == Dtype::bf16 || *dtype == Dtype::fp16);
  if (tensor.shape != shape || !is_wide) {
    throw Error(ErrorCode::bad_data, "[lora] {}: '{}' must be F32, BF16 or F16 {}, got {} {}",
                adapters_.path(), name, to_string(shape), safe_dtype_name(tensor.stored),
                to_string(tensor.shape));
  }
  const std::vector<std::byte> bytes = adapters_.read(name);
  std::vector<float> values(static_cast<size_t>(n_elems(shape)));
  if (*dtype == Dtype::f32) {
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, bytes.data() + 2 * i, 2);
    values[i] = decode(*dtype, code);
  }
  return values;
}

// What the base's weight was while the adapters were trained.
std::vector<float> MergedWeights::base_values(const std::string& parameter) const {
  std::vector<float> values = base_.read(parameter);
  if (!frozen_.contains(parameter)) {
    round_to(note_.frozen == FrozenFormat::bf16 ? Dtype::bf16 : note_.compute, values);
    return values;
  }
  const Shape& shape = stored(parameter).shape;
  const FrozenMatrix frozen = freeze(note_.frozen, shape, values, parameter);
  dequantize(quantizer_of(note_.frozen), {shape[0], shape[1]}, frozen.data, frozen.scales, values);
  return values;
}

std::vector<float> MergedWeights::merged(const std::string& parameter) const {
  std::vector<float> values = base_values(parameter);
  const auto found = by_weight_.find(parameter);
  if (found == by_weight_.end()) return values;
  const LoraAdapter& adapter = found->second;
  const int64_t rank = note_.lora.rank, n_in = adapter.n_in;
  const std::vector<float> a = factor(adapter.a(), {rank, n_in});
  const std::vector<float> b = factor(adapter.b(), {adapter.n_out, rank});
  const double scale = note_.lora.alpha / static_cast<double>(rank);
  std::vector<double> row(static_cast<size_t>(n_in));
  for (int64_t out = 0; out < adapter.n_out; ++out) {
    std::ranges::fill(row, 0.0);
    for (int64_t r = 0; r < rank; ++r) {
      const auto factor_b = scale * static_cast<double>(b[static_cast<size_t>(out * rank + r)]);
      const float* a_row = a.data() + r * n_in;
      for (int64_t in = 0; in < n_in; ++in) {
        row[static_cast<size_t>(in)] += factor_b * static_cast<double>(a_row[in]);
      }
    }
    for (int64_t in = 0; in < n_in; ++in) {
      const int64_t at = adapter.out_in ? out * n_in + in : in * adapter.n_out + out;
      float& value = values[static_cast<size_t>(at)];
      value = static_cast<float>(static_cast<double>(value) + row[static_cast<size_t>(in)]);
    }
  }
  return values;
}

MergedWeights::Values MergedWeights::whole(const std::string& parameter) const {
  const std::scoped_lock lock(mutex_);
  const auto found = recent_.find(parameter);
  if (found != recent_.end()) return found->second;
  if (recent_.size() >= kMostRecent) recent_.clear();
  return recent_[parameter] = std::make_shared<const std::vector<float>>(merged(parameter));
}

void MergedWeights::read(const std::string& parameter, int64_t first, std::span<float> out) const {
  const Values values = whole(parameter);
  CHECK(first >= 0 && static_cast<size_t>(first) + out.size() <= values->size());
  std::copy_n(values->begin() + first, out.size(), out.begin());
}

void MergedWeights::read_stored(const std::string& parameter, std::span<std::byte> out,
                                uint64_t first) const {
  const auto width = static_cast<uint64_t>(dtype_bytes(note_.compute));
  CHECK(first % width == 0 && out.size() % width == 0);
  std::vector<float> values(out.size() / width);
  read(parameter, static_cast<int64_t>(first / width), values);
  encode_weights(values, note_.compute, out);
}

}  // namespace octet
