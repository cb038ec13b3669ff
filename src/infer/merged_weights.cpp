#include "infer/merged_weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "formats/codec.h"
#include "infer/model_spec.h"
#include "infer/tensor_streams.h"

namespace octet {
namespace {

constexpr size_t kMaxRecent = 16;

void round_to(Dtype dtype, std::span<float> values) {
  if (dtype == Dtype::f32) return;
  visit_format(dtype, [&]<Dtype D>() {
    for (float& value : values)
      value = decode<D>(encode<D>(value, Rounding::rne, {.saturate = false}));
  });
}

// The base that a folder of PEFT's is read beside, with the head that it ties.
ModelSpec tied_spec(const Files& files, const std::string& base, ModelSpec spec) {
  spec.tied = read_folder_spec(files, base).tied;
  return spec;
}

}  // namespace

std::set<std::string> frozen_matrices(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const LoraAdapter& linear : adaptable_linears(spec)) names.insert(linear.weight());
  return names;
}

std::vector<double> output_norms(const LoraAdapter& adapter, const ReadValues& read) {
  const int64_t n_cols = adapter.out_in ? adapter.n_in : adapter.n_out;
  std::vector<double> norms(static_cast<size_t>(adapter.n_out));
  stream_values(
      adapter.n_in * adapter.n_out, read, [&](int64_t first, std::span<const float> values) {
        for (int64_t i = 0; i < std::ssize(values); ++i) {
          const int64_t out = adapter.out_in ? (first + i) / n_cols : (first + i) % n_cols;
          const auto value = static_cast<double>(values[static_cast<size_t>(i)]);
          norms[static_cast<size_t>(out)] += value * value;
        }
      });
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

MergedWeights::MergedWeights(const Files& files, const AdapterNote& note,
                             const std::string& adapters, const ModelSpec& spec,
                             NonfiniteWeights nonfinite)
    : compute_(note.compute),
      frozen_format_(note.frozen),
      base_(files, note.base, spec, nonfinite,
            note.lora.head.empty() || model_def(spec.kind).heads.empty() ? HeadWeights::all_stored
                                                                         : HeadWeights::may_be_new),
      adapters_(ModelFiles::open(files, adapters)) {
  if (weights_hash(base_, spec, note.lora.head) != note.base_hash) {
    throw Error(ErrorCode::bad_data,
                "[lora] '{}': expected the base that the adapters of {} were trained on ({}), got "
                "other weights",
                note.base, adapters, note.base_hash);
  }
  if (is_quantized(note.frozen)) frozen_ = frozen_matrices(spec);
  for (LoraAdapter& adapter : adapters_of(spec, note.lora)) {
    std::string a = adapter.a(), b = adapter.b();
    std::string magnitude = note.lora.kind == LoraKind::dora ? adapter.magnitude() : "";
    add_factors({std::move(adapter), std::move(a), std::move(b), std::move(magnitude)});
  }
  for (const ParameterSpec& parameter : model_parameters(spec)) {
    StoredTensor tensor;
    static_cast<TensorDecl&>(tensor) = tensor_decl(parameter.name, note.compute, parameter.shape);
    stored_.emplace(parameter.name, std::move(tensor));
    if (std::ranges::find(note.lora.head, parameter.name) == note.lora.head.end()) continue;
    checked(parameter.name, parameter.shape);
    whole_.emplace(parameter.name, parameter.name);
  }
}

MergedWeights::MergedWeights(const Files& files, const WeightPath& path, const ModelSpec& spec,
                             NonfiniteWeights nonfinite)
    : base_(files, path.path, tied_spec(files, path.path, spec), nonfinite),
      adapters_(ModelFiles::open(files, join_path(path.adapter, kPeftWeights))) {
  const ModelSpec base = tied_spec(files, path.path, spec);
  PeftAdapter adapter = read_peft_adapter(files, path.adapter, base);
  CHECK(adapted_spec(base, adapter).tied == spec.tied);
  if (adapter.unties) tied_.emplace(model_def(base.kind).head, model_parameters(base).front().name);
  for (PeftLinear& one : adapter.linears)
    add_factors({std::move(one.adapter), one.a, one.b, one.magnitude});
  whole_ = std::move(adapter.saved);
  beneath_ = std::move(adapter.beneath);
  for (const ParameterSpec& parameter : model_parameters(spec)) {
    const auto tied = tied_.find(parameter.name);
    const StoredTensor& of_base = base_.stored(tied == tied_.end() ? parameter.name : tied->second);
    const bool is_high = of_base.dtype && is_high_precision(*of_base.dtype);
    StoredTensor tensor;
    static_cast<TensorDecl&>(tensor) =
        tensor_decl(parameter.name, is_high ? *of_base.dtype : Dtype::bf16, parameter.shape);
    stored_.emplace(parameter.name, std::move(tensor));
  }
}

void MergedWeights::add_factors(Factors factors) {
  const LoraAdapter& adapter = factors.adapter;
  checked(factors.a, {adapter.rank, adapter.n_in});
  checked(factors.b, {adapter.n_out, adapter.rank});
  if (!factors.magnitude.empty()) checked(factors.magnitude, {adapter.n_out});
  std::string weight = adapter.weight();
  by_weight_.emplace(std::move(weight), std::move(factors));
}

const StoredTensor& MergedWeights::checked(const std::string& name, const Shape& shape) const {
  const StoredTensor& tensor = adapters_.at(name);
  const auto dtype = native_dtype(tensor.stored);
  if (tensor.shape != shape || !dtype || !is_high_precision(*dtype)) {
    throw Error(ErrorCode::bad_data, "[lora] {}: '{}' must be F32, BF16 or F16 {}, got {} {}",
                adapters_.path(), name, to_string(shape), safe_dtype_name(tensor.stored),
                to_string(tensor.shape));
  }
  return tensor;
}

std::vector<float> MergedWeights::factor(const std::string& name, const Shape& shape) const {
  checked(name, shape);
  return adapters_.read_values(name);
}

std::shared_ptr<const MergedWeights::Change> MergedWeights::change_of(
    const std::string& parameter) const {
  const std::scoped_lock lock(mutex_);
  const auto found = recent_.find(parameter);
  if (found != recent_.end()) return found->second;
  auto change = std::make_shared<Change>();
  if (frozen_.contains(parameter)) {
    change->frozen.emplace(base_, parameter, stored(parameter).shape, frozen_format_);
  }
  if (const auto it = by_weight_.find(parameter); it != by_weight_.end()) {
    const LoraAdapter& adapter = it->second.adapter;
    change->factors = &it->second;
    change->a = factor(it->second.a, {adapter.rank, adapter.n_in});
    change->b = factor(it->second.b, {adapter.n_out, adapter.rank});
    if (!it->second.magnitude.empty()) find_gain(parameter, *change);
  }
  if (recent_.size() >= kMaxRecent) recent_.clear();
  return recent_[parameter] = std::move(change);
}

// Reads the weight once, for the norms of W + s B A.
void MergedWeights::find_gain(const std::string& parameter, Change& change) const {
  const LoraAdapter& adapter = change.factors->adapter;
  const int64_t n_cols = stored(parameter).shape.back();
  const std::vector<double> norms = output_norms(adapter, [&](int64_t first, std::span<float> out) {
    read_base(parameter, change, first, out);
    add_product(change, n_cols, first, out);
  });
  const std::vector<float> magnitude = factor(change.factors->magnitude, {adapter.n_out});
  for (size_t i = 0; i < norms.size(); ++i)
    change.gain.push_back(static_cast<double>(magnitude[i]) / norms[i]);
}

// s B A, of elements [first, first + out.size()) of a weight of n_cols columns.
void MergedWeights::add_product(const Change& change, int64_t n_cols, int64_t first,
                                std::span<float> out) const {
  const LoraAdapter& adapter = change.factors->adapter;
  const int64_t rank = adapter.rank, n_in = adapter.n_in;
  const double scale = adapter.scale;
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

void MergedWeights::read_base(const std::string& parameter, const Change& change, int64_t first,
                              std::span<float> out) const {
  if (const auto beneath = beneath_.find(parameter); beneath != beneath_.end()) {
    adapters_.read_values(beneath->second, first, out);
  } else {
    const auto tied = tied_.find(parameter);
    base_.read(tied == tied_.end() ? parameter : tied->second, first, out);
  }
  if (change.frozen) {
    change.frozen->round(first, out);
  } else {
    round_to(frozen_format_ == FrozenFormat::bf16 ? Dtype::bf16 : compute_, out);
  }
}

void MergedWeights::read(const std::string& parameter, int64_t first, std::span<float> out) const {
  if (const auto own = whole_.find(parameter); own != whole_.end())
    return adapters_.read_values(own->second, first, out);
  const std::shared_ptr<const Change> change = change_of(parameter);
  read_base(parameter, *change, first, out);
  if (change->factors == nullptr) return;
  const int64_t n_cols = stored(parameter).shape.back();
  add_product(*change, n_cols, first, out);
  if (change->gain.empty()) return;
  const bool out_in = change->factors->adapter.out_in;
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const int64_t row = (first + i) / n_cols, col = (first + i) % n_cols;
    float& value = out[static_cast<size_t>(i)];
    value = static_cast<float>(static_cast<double>(value) *
                               change->gain[static_cast<size_t>(out_in ? row : col)]);
  }
}

void MergedWeights::read_stored(const std::string& parameter, std::span<std::byte> out,
                                uint64_t first) const {
  const Dtype dtype = *stored(parameter).dtype;
  const auto width = static_cast<uint64_t>(octet::bytes_of(dtype, 1));
  CHECK(first % width == 0 && out.size() % width == 0);
  std::vector<float> values(out.size() / width);
  read(parameter, static_cast<int64_t>(first / width), values);
  encode_weights(values, dtype, out);
}

}  // namespace octet
