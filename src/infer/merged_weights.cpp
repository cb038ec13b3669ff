#include "infer/merged_weights.h"

#include <algorithm>

#include "base/error.h"
#include "formats/arrays.h"
#include "formats/codec.h"
#include "infer/stored_weights.h"

namespace octet {
namespace {

constexpr size_t kMaxRecent = 16;

Graph forward_graph(const ModelSpec& spec) {
  return build_model(spec, {.batch = 1, .seq = 1}, ModelOutputs::outputs).graph;
}

void round_to(Dtype dtype, std::span<float> values) {
  if (dtype == Dtype::f32) return;
  visit_format(dtype, [&]<Dtype D>() {
    for (float& value : values)
      value = decode<D>(encode<D>(value, Rounding::rne, {.saturate = false}));
  });
}

}  // namespace

std::set<std::string> frozen_matrices(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const LoraAdapter& linear :
       lora_adapters(forward_graph(spec), {.rank = 1, .targets = {"*"}})) {
    names.insert(linear.weight());
  }
  return names;
}

MergedWeights::MergedWeights(const Files& files, const AdapterNote& note,
                             const std::string& adapters, const ModelSpec& spec,
                             NonfiniteWeights nonfinite)
    : note_(note),
      base_(files, note.base, spec, nonfinite,
            note.lora.head.empty() ? HeadWeights::all_stored : HeadWeights::may_be_new),
      adapters_(ModelFiles::open(files, adapters)) {
  if (weights_hash(base_, spec, note.lora.head) != note.base_hash) {
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
    if (std::ranges::find(note.lora.head, parameter.name) == note.lora.head.end()) continue;
    head_.emplace(parameter.name, factor(parameter.name, parameter.shape));
  }
}

std::vector<float> MergedWeights::factor(const std::string& name, const Shape& shape) const {
  const StoredTensor& tensor = adapters_.at(name);
  const auto dtype = native_dtype(tensor.stored);
  if (tensor.shape != shape || !dtype || !is_high_precision(*dtype)) {
    throw Error(ErrorCode::bad_data, "[lora] {}: '{}' must be F32, BF16 or F16 {}, got {} {}",
                adapters_.path(), name, to_string(shape), safe_dtype_name(tensor.stored),
                to_string(tensor.shape));
  }
  return decode_values(*dtype, adapters_.read(name));
}

std::shared_ptr<const MergedWeights::Change> MergedWeights::change_of(
    const std::string& parameter) const {
  const std::scoped_lock lock(mutex_);
  const auto found = recent_.find(parameter);
  if (found != recent_.end()) return found->second;
  auto change = std::make_shared<Change>();
  if (frozen_.contains(parameter)) {
    change->frozen.emplace(base_, parameter, stored(parameter).shape, note_.frozen);
  }
  if (const auto it = by_weight_.find(parameter); it != by_weight_.end()) {
    const LoraAdapter& adapter = it->second;
    change->adapter = &adapter;
    change->a = factor(adapter.a(), {note_.lora.rank, adapter.n_in});
    change->b = factor(adapter.b(), {adapter.n_out, note_.lora.rank});
  }
  if (recent_.size() >= kMaxRecent) recent_.clear();
  return recent_[parameter] = std::move(change);
}

// (alpha / rank) B A, of elements [first, first + out.size()) of a weight of n_cols columns.
void MergedWeights::add_product(const Change& change, int64_t n_cols, int64_t first,
                                std::span<float> out) const {
  const LoraAdapter& adapter = *change.adapter;
  const int64_t rank = note_.lora.rank, n_in = adapter.n_in;
  const double scale = note_.lora.alpha / static_cast<double>(rank);
  const auto scaled_b = [&](int64_t row, int64_t r) {
    return scale * static_cast<double>(change.b[static_cast<size_t>(row * rank + r)]);
  };
  const auto a_of = [&](int64_t r, int64_t in) {
    return static_cast<double>(change.a[static_cast<size_t>(r * n_in + in)]);
  };
  std::vector<double> sums(static_cast<size_t>(n_cols));
  const int64_t n = std::ssize(out);
  for (int64_t i = 0; i < n;) {
    const int64_t row = (first + i) / n_cols, col = (first + i) % n_cols;
    const int64_t length = std::min(n - i, n_cols - col);
    std::fill_n(sums.begin(), length, 0.0);
    for (int64_t r = 0; r < rank; ++r) {
      const double of_row = adapter.out_in ? scaled_b(row, r) : a_of(r, row);
      for (int64_t j = 0; j < length; ++j) {
        sums[static_cast<size_t>(j)] +=
            of_row * (adapter.out_in ? a_of(r, col + j) : scaled_b(col + j, r));
      }
    }
    for (int64_t j = 0; j < length; ++j) {
      float& value = out[static_cast<size_t>(i + j)];
      value = static_cast<float>(static_cast<double>(value) + sums[static_cast<size_t>(j)]);
    }
    i += length;
  }
}

void MergedWeights::read(const std::string& parameter, int64_t first, std::span<float> out) const {
  if (const auto own = head_.find(parameter); own != head_.end()) {
    std::copy_n(own->second.begin() + first, out.size(), out.begin());
    return;
  }
  const std::shared_ptr<const Change> change = change_of(parameter);
  base_.read(parameter, first, out);
  if (change->frozen) {
    change->frozen->round(first, out);
  } else {
    round_to(note_.frozen == FrozenFormat::bf16 ? Dtype::bf16 : note_.compute, out);
  }
  if (change->adapter != nullptr) add_product(*change, stored(parameter).shape.back(), first, out);
}

void MergedWeights::read_stored(const std::string& parameter, std::span<std::byte> out,
                                uint64_t first) const {
  const auto width = static_cast<uint64_t>(bytes_of(note_.compute, 1));
  CHECK(first % width == 0 && out.size() % width == 0);
  std::vector<float> values(out.size() / width);
  read(parameter, static_cast<int64_t>(first / width), values);
  encode_weights(values, note_.compute, out);
}

}  // namespace octet
