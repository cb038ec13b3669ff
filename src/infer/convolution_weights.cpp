#include "infer/convolution_weights.h"

#include <cmath>
#include <set>

#include "base/error.h"
#include "formats/arrays.h"
#include "nn/hf_names.h"

namespace octet {
namespace {

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
  if (tensor.shape == Shape{n_channels} && tensor.dtype)
    return decode_values(*tensor.dtype, files.read(stored));
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

std::optional<ChannelOrder> channel_order(const ParameterSpec& parameter) {
  if (!parameter.channels_last) return std::nullopt;
  const ChannelOrder order{.n_in = parameter.file_shape.at(1),
                           .n_taps = parameter.shape.at(1) / parameter.file_shape.at(1)};
  return order.n_in == 1 || order.n_taps == 1 ? std::nullopt : std::optional(order);
}

void to_memory_order(const ChannelOrder& order, std::span<const float> file,
                     std::span<float> memory) {
  const auto n_in = static_cast<size_t>(order.n_in), n_taps = static_cast<size_t>(order.n_taps);
  for (size_t row = 0; row < file.size(); row += n_in * n_taps) {
    for (size_t c = 0; c < n_in; ++c)
      for (size_t k = 0; k < n_taps; ++k) memory[row + k * n_in + c] = file[row + c * n_taps + k];
  }
}

void to_file_order(const ChannelOrder& order, std::span<const float> memory,
                   std::span<float> file) {
  to_memory_order({.n_in = order.n_taps, .n_taps = order.n_in}, memory, file);
}

std::vector<float> in_file_order(const ParameterSpec& parameter, std::vector<float> memory) {
  const auto order = channel_order(parameter);
  if (!order) return memory;
  std::vector<float> file(memory.size());
  to_file_order(*order, memory, file);
  return file;
}

void read_in_memory_order(const ChannelOrder& order, int64_t first, std::span<float> out,
                          const ReadElements& read) {
  const int64_t row = order.row(), begin = first / row * row;
  const int64_t end = (first + std::ssize(out) + row - 1) / row * row;
  std::vector<float> file(static_cast<size_t>(end - begin)), memory(file.size());
  read(begin, file);
  to_memory_order(order, file, memory);
  std::copy_n(memory.begin() + (first - begin), out.size(), out.begin());
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
