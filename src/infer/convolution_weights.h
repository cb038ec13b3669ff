// Changes that make the weights of convolutions in files those of a model: the order of their
// elements, and, of a model whose batch norms are folded, what the norms behind them do.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/model_files.h"
#include "nn/model.h"

namespace octet {

// Order of a row, an output channel: in files [n_in, n_taps], in memory [n_taps, n_in].
struct ChannelOrder {
  int64_t n_in = 1, n_taps = 1;
  int64_t row() const { return n_in * n_taps; }
};
// Nothing where both are the same.
std::optional<ChannelOrder> channel_order(const ParameterSpec& parameter);

// Whole rows, from the order of files to that of memory and back.
void to_memory_order(const ChannelOrder& order, std::span<const float> file,
                     std::span<float> memory);
void to_file_order(const ChannelOrder& order, std::span<const float> memory, std::span<float> file);
// Whole rows of a parameter, as files have them.
std::vector<float> in_file_order(const ParameterSpec& parameter, std::vector<float> memory);

// Elements of memory [first, first + out.size()), of files that `read` reads.
using ReadElements = std::function<void(int64_t first, std::span<float> out)>;
void read_in_memory_order(const ChannelOrder& order, int64_t first, std::span<float> out,
                          const ReadElements& read);

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
