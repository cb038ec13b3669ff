// Weights that files hold otherwise than a model: packed ones; those of convolutions, whose
// elements have another order; and, of a model whose batch norms are folded, those with norms
// behind them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infer/tensor_streams.h"
#include "io/model_files.h"
#include "nn/model.h"

namespace octet {

// INT8 weights as compressed-tensors' pack-quantized has them: NAME.weight_packed, I32
// [rows, ceil(cols / 4)], a row's bytes q + 128 in order and zeros behind them, with
// NAME.weight_shape, I64 [2]: rows, cols. Source: compressed-tensors 0.20, pack_quantized.
inline constexpr std::string_view kPackedSuffix = ".weight_packed";
inline constexpr std::string_view kPackedShapeSuffix = ".weight_shape";

class PackedWeight {
 public:
  // `packed`: its name in the files. Throws Error{bad_data} where it is not a weight of this shape.
  PackedWeight(const ModelFiles& files, const std::string& packed, const Shape& shape);

  const StoredTensor& unpacked() const { return unpacked_; }  // NAME.weight, I8
  // Bytes [first, first + out.size()) of it. From several threads at a time.
  void read(const ModelFiles& files, std::span<std::byte> out, uint64_t first) const;

 private:
  std::string name_;
  StoredTensor unpacked_;
};

// Of a row, an output channel: in files [n_in, n_taps], in memory [n_taps, n_in].
struct ChannelOrder {
  int64_t n_in = 1, n_taps = 1;
};
// Nothing where both are the same.
std::optional<ChannelOrder> channel_order(const ParameterSpec& parameter);

// Elements of memory [first, first + out.size()), of files that `read` reads.
void read_in_memory_order(const ChannelOrder& order, int64_t first, std::span<float> out,
                          const ReadValues& read);
// A parameter as files have it, of memory that `read` reads.
ReadValues in_file_order(const ParameterSpec& parameter, ReadValues read);

// ModelSpec::folded_norms of files that still have the norms: a weight becomes w * g, and the bias
// of its convolution b - mean * g, where g = w_norm / sqrt(var + eps) of the output channel; a bias
// c that it had becomes c * g + b - mean * g.
class FoldedNorms {
 public:
  FoldedNorms() = default;
  // `stored_name`: the tensor of each parameter; gains those of the biases, the norms' own. Throws
  // Error{bad_data} where a norm is not whole, or stands beside a bias that it would be folded
  // into, and, where `are_finite`, for statistics that give no finite factor.
  FoldedNorms(const ModelFiles& files, const ModelSpec& spec, bool are_finite,
              std::map<std::string, std::string>& stored_name);

  bool changes(const std::string& parameter) const { return folds_.contains(parameter); }
  // Elements of memory, `first` on.
  void apply(const std::string& parameter, int64_t first, std::span<float> values) const;

 private:
  struct Fold {
    int64_t row = 1;  // elements of an output channel
    std::vector<float> scale, offset;
  };
  std::map<std::string, Fold> folds_;
};

}  // namespace octet
