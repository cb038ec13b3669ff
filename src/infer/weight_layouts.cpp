#include "infer/weight_layouts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/integer.h"
#include "nn/hf_names.h"

namespace octet {
namespace {

constexpr int64_t kWord = 4;  // bytes

[[noreturn]] void bad(const ModelFiles& files, const std::string& name, const Shape& expected,
                      std::string_view dtype, const std::string& got) {
  throw Error(ErrorCode::bad_data, "[weights] {}: '{}' must be {} {}, got {}", files.path(), name,
              dtype, to_string(expected), got);
}

ModelSpec with_norms(ModelSpec spec) {
  spec.folded_norms = false;
  return spec;
}

// Tensors of files by the names that they would have in a model with its norms.
std::map<std::string, std::string> names_with_norms(const ModelFiles& files,
                                                    const ModelSpec& spec) {
  std::map<std::string, std::string> names;
  for (const std::string& stored : files.names()) {
    if (const auto name = parameter_name(spec, stored)) names.emplace(*name, stored);
  }
  return names;
}

std::vector<float> read_channels(const ModelFiles& files, const std::string& stored,
                                 int64_t n_channels) {
  const StoredTensor& tensor = files.at(stored);
  if (tensor.shape == Shape{n_channels} && tensor.dtype) return files.read_values(stored);
  throw Error(ErrorCode::bad_data, "[weights] {}: '{}' must be [{}], got {}", files.path(), stored,
              n_channels, to_string(tensor.shape));
}

bool has_norm(const std::map<std::string, std::string>& names, const std::string& norm) {
  return names.contains(norm + ".running_mean");
}

// A convolution that has a bias holds its norm already, where it has none beside a norm.
void expect_no_norm(const ModelFiles& files, const std::map<std::string, std::string>& names,
                    const std::string& bias, const std::string& norm) {
  const auto at = names.lower_bound(norm + ".");
  if (at == names.end() || !at->first.starts_with(norm + ".")) return;
  throw Error(ErrorCode::bad_data, "[weights] {}: expected '{}' or the norm '{}', got both",
              files.path(), bias, at->second);
}

}  // namespace

PackedWeight::PackedWeight(const ModelFiles& files, const std::string& packed, const Shape& shape)
    : name_(packed) {
  const std::string module = packed.substr(0, packed.size() - kPackedSuffix.size());
  const StoredTensor& words = files.at(packed);
  const Shape expected = {shape.at(0), ceil_div(shape.at(1), kWord)};
  if (words.stored != SafeDtype::i32 || words.shape != expected) {
    bad(files, packed, expected, "I32",
        fmt::format("{} {}", safe_dtype_name(words.stored), to_string(words.shape)));
  }
  const std::string beside = module + std::string(kPackedShapeSuffix);
  const StoredTensor& extents = files.at(beside);
  std::vector<int64_t> said(2);
  const bool is_pair = extents.stored == SafeDtype::i64 && extents.shape == Shape{2};
  if (is_pair) files.read(beside, std::as_writable_bytes(std::span(said)));
  if (!is_pair || said != shape) {
    bad(files, beside, shape, "the extents",
        is_pair ? to_string(said)
                : fmt::format("{} {}", safe_dtype_name(extents.stored), to_string(extents.shape)));
  }
  static_cast<TensorDecl&>(unpacked_) = tensor_decl(module + ".weight", Dtype::int8, shape);
  unpacked_.dtype = Dtype::int8;
}

void PackedWeight::read(const ModelFiles& files, std::span<std::byte> out, uint64_t first) const {
  const auto cols = static_cast<uint64_t>(unpacked_.shape.at(1));
  const auto stride = static_cast<uint64_t>(ceil_div(unpacked_.shape.at(1), kWord) * kWord);
  if (stride == cols) {
    files.read(name_, out, first);
  } else {
    for (uint64_t i = 0; i < out.size();) {
      const uint64_t row = (first + i) / cols, col = (first + i) % cols;
      const uint64_t n = std::min<uint64_t>(cols - col, out.size() - i);
      files.read(name_, out.subspan(i, n), row * stride + col);
      i += n;
    }
  }
  for (std::byte& code : out) code ^= std::byte{0x80};  // q + 128 to two's complement
}

std::optional<ChannelOrder> channel_order(const ParameterSpec& parameter) {
  if (!parameter.channels_last) return std::nullopt;
  const ChannelOrder order{.n_in = parameter.file_shape.at(1),
                           .n_taps = parameter.shape.at(1) / parameter.file_shape.at(1)};
  return order.n_in == 1 || order.n_taps == 1 ? std::nullopt : std::optional(order);
}

void read_in_memory_order(const ChannelOrder& order, int64_t first, std::span<float> out,
                          const ReadValues& read) {
  const auto n_in = static_cast<size_t>(order.n_in), n_taps = static_cast<size_t>(order.n_taps);
  const int64_t row = order.n_in * order.n_taps, begin = first / row * row;
  const int64_t end = (first + std::ssize(out) + row - 1) / row * row;
  std::vector<float> file(static_cast<size_t>(end - begin)), memory(file.size());
  read(begin, file);
  for (size_t at = 0; at < file.size(); at += n_in * n_taps) {
    for (size_t c = 0; c < n_in; ++c)
      for (size_t k = 0; k < n_taps; ++k) memory[at + k * n_in + c] = file[at + c * n_taps + k];
  }
  std::copy_n(memory.begin() + (first - begin), out.size(), out.begin());
}

ReadValues in_file_order(const ParameterSpec& parameter, ReadValues read) {
  const auto order = channel_order(parameter);
  if (!order) return read;
  return
      [back = ChannelOrder{.n_in = order->n_taps, .n_taps = order->n_in}, read = std::move(read)](
          int64_t first, std::span<float> out) { read_in_memory_order(back, first, out, read); };
}

FoldedNorms::FoldedNorms(const ModelFiles& files, const ModelSpec& spec, bool are_finite,
                         std::map<std::string, std::string>& stored_name) {
  constexpr std::string_view kWeight = ".weight";
  const std::map<std::string, std::string> names = names_with_norms(files, with_norms(spec));
  std::set<std::string> beside_norms;
  for (const ParameterSpec& parameter : model_parameters(with_norms(spec)))
    beside_norms.insert(parameter.name);
  for (const ParameterSpec& parameter : model_parameters(spec)) {
    if (!parameter.channels_last) continue;
    const std::string module = parameter.name.substr(0, parameter.name.size() - kWeight.size());
    const std::string bias = module + ".bias";
    const std::string norm = model_def(spec.kind).norm_behind(module);
    if (norm.empty()) continue;
    const auto own = stored_name.find(bias);
    const bool has_bias = own != stored_name.end();
    if (has_bias && !(beside_norms.contains(bias) && has_norm(names, norm))) {
      expect_no_norm(files, names, own->second, norm);
      continue;
    }
    const int64_t n = parameter.shape[0];
    const auto channels = [&](std::string_view leaf) {
      const auto at = names.find(fmt::format("{}.{}", norm, leaf));
      if (at != names.end()) return read_channels(files, at->second, n);
      throw Error(ErrorCode::bad_data, "[weights] {}: expected a tensor '{}' or '{}.{}', got none",
                  files.path(), bias, norm, leaf);
    };
    const std::vector<float> weight = channels("weight"), mean = channels("running_mean"),
                             variance = channels("running_var");
    const std::vector<float> offset = channels("bias");
    Fold of_weight{.row = parameter.shape[1], .scale = {}, .offset = {}}, of_bias;
    for (size_t c = 0; c < weight.size(); ++c) {
      const double scale = weight[c] / std::sqrt(variance[c] + spec.norm_eps);
      if (are_finite && !(std::isfinite(scale) && std::isfinite(mean[c]))) {
        throw Error(ErrorCode::bad_data,
                    "[weights] {}: channel {} of '{}': expected finite statistics and a variance "
                    "above 0, got mean {}, variance {}, weight {}",
                    files.path(), c, norm, mean[c], variance[c], weight[c]);
      }
      of_weight.scale.push_back(static_cast<float>(scale));
      of_bias.offset.push_back(static_cast<float>((has_bias ? offset[c] : 0) - mean[c] * scale));
      if (has_bias) of_bias.scale.push_back(static_cast<float>(scale));
    }
    if (!has_bias) stored_name[bias] = names.at(norm + ".bias");
    folds_.emplace(parameter.name, std::move(of_weight));
    folds_.emplace(bias, std::move(of_bias));
  }
}

void FoldedNorms::apply(const std::string& parameter, int64_t first,
                        std::span<float> values) const {
  const auto at = folds_.find(parameter);
  if (at == folds_.end()) return;
  const auto& [row, scale, offset] = at->second;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto channel = static_cast<size_t>((first + static_cast<int64_t>(i)) / row);
    if (!scale.empty()) values[i] *= scale[channel];
    if (!offset.empty()) values[i] += offset[channel];
  }
}

}  // namespace octet
