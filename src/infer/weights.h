// A model's weights from safetensors files, as f32.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "formats/dtype.h"
#include "infer/fake_quantize_inputs.h"
#include "infer/weight_layouts.h"
#include "io/model_files.h"
#include "io/quantization_config.h"
#include "nn/model.h"

namespace octet {

class MergedWeights;

// Handling of weights that are NaN or Inf, or become so in the type they are read into.
enum class NonfiniteWeights : uint8_t { refused, allowed };
constexpr NonfiniteWeights nonfinite_weights(bool are_allowed) {
  return are_allowed ? NonfiniteWeights::allowed : NonfiniteWeights::refused;
}

// Whether parameters of an encoder's head may be missing in the files, or have another shape there:
// a model with a new head (model.head beside model.path) begins with first values of these.
enum class HeadWeights : uint8_t { all_stored, may_be_new };

// A model's folder or one .safetensors file, and an adapter's folder beside it (PEFT's); "": none.
struct WeightPath {
  std::string path, adapter = {};
  WeightPath() = default;
  WeightPath(std::string of, std::string beside = {})  // NOLINT: a path is one without an adapter
      : path(std::move(of)), adapter(std::move(beside)) {}
  bool operator==(const WeightPath&) const = default;
};

class WeightReader {
 public:
  // A run's adapters (infer/adapter_note.h), or an adapter beside the path, are read as what they
  // and their base are together (infer/merged_weights.h). Opens and checks the files: every
  // parameter of the model is there once, with its shape, as F32, BF16, F16, or in 8 bits with its
  // scales (io/quantization_config.h), and nothing else is there (but buffers that are no
  // parameters, and with may_be_new those of other heads). Throws Error{bad_data} naming the first
  // tensor that differs.
  WeightReader(const Files& files, const WeightPath& path, const ModelSpec& spec,
               NonfiniteWeights nonfinite = NonfiniteWeights::refused,
               HeadWeights head = HeadWeights::all_stored);

  // The same of files that are open, without scales and adapters.
  WeightReader(ModelFiles files, const ModelSpec& spec, NonfiniteWeights nonfinite);

  // That the files do not hold; none may be read.
  const std::set<std::string>& new_parameters() const { return new_; }

  // Row-major in the parameter's shape; exact, but for q * scale, which is rounded once to nearest.
  // What is refused throws Error{bad_data} that names tensor and element, here and below.
  std::vector<float> read(const std::string& parameter) const;
  // Elements [first, first + out.size()). From several threads at a time.
  void read(const std::string& parameter, int64_t first, std::span<float> out) const;

  // What the files hold for a parameter; of a packed one (infer/weight_layouts.h) what is packed.
  const StoredTensor& stored(const std::string& parameter) const;
  void read_stored(const std::string& parameter, std::span<std::byte> out, uint64_t first) const;
  // Throws where one of these elements of the parameter, `first` on, is not finite in this type.
  void check_finite(const std::string& parameter, int64_t first, std::span<const float> values,
                    Dtype dtype = Dtype::f32) const;
  // Scales of an 8-bit weight; nullptr of others.
  struct Scales {
    StoredTensor tensor;
    BlockShape block;           // that one of them covers
    std::vector<float> values;  // row-major over the blocks
  };
  const Scales* scales(const std::string& parameter) const;
  // Other tensors that the files hold of a quantized model, as its parameters are named: scales of
  // weights, of inputs and of a cache. The names that they have in the files.
  const std::map<std::string, std::string>& quantization_tensors() const { return beside_; }
  const ModelFiles& files() const { return files_; }
  bool is_merged() const { return merged_ != nullptr; }
  // True if its values are those of the file, and in the order of the file.
  bool is_as_stored(const std::string& parameter) const {
    return !orders_.contains(parameter) && !norms_.changes(parameter);
  }
  bool is_folded(const std::string& parameter) const { return norms_.changes(parameter); }
  // The name of the tensor that a parameter is packed in; "" of others.
  std::string packed_name(const std::string& parameter) const;
  // How the inputs of linears with 8-bit weights, and residual sums, are quantized.
  const FakeQuantizeInputs& inputs() const { return inputs_; }

 private:
  void find_parameters(const ModelSpec& spec, const QuantizationConfig& quantization,
                       HeadWeights head);
  void find_tied_embedding(const ModelSpec& spec);
  void find_new_parameters(const ModelSpec& spec, std::span<const ParameterSpec> parameters);
  void expect_all_stored(std::span<const ParameterSpec> parameters) const;
  void add_parameter(const ModelSpec& spec, const ParameterSpec& parameter,
                     const QuantizationConfig& config);
  void add_scales(const std::string& parameter, const StoredTensor& weight,
                  const QuantizationGroup& group);
  void add_input(const std::string& parameter, const ActivationScheme& scheme);
  float read_input_scale(const std::string& parameter) const;
  // The one of two tensors that is there. `expected` begins the message, `none` ends it.
  const StoredTensor& only_one(const std::vector<std::string>& names, std::string_view expected,
                               std::string_view none) const;
  void check_decompressed(const ModelSpec& spec, const QuantizationConfig& config) const;
  std::vector<float> read_scales(const StoredTensor& tensor) const;

  void read_in_file_order(const std::string& parameter, int64_t first, std::span<float> out) const;
  void read_unchecked(const std::string& parameter, std::span<std::byte> out, uint64_t first) const;

  NonfiniteWeights nonfinite_;
  std::shared_ptr<const MergedWeights> merged_;  // shared: readers are copied
  ModelFiles files_;
  std::map<std::string, std::string> stored_name_;  // by parameter
  std::set<std::string> new_;
  std::map<std::string, PackedWeight> packed_;  // by parameter
  std::map<std::string, std::string> beside_;   // by the name that a parameter would have
  std::map<std::string, Scales> scales_;        // by parameter
  std::map<std::string, ChannelOrder> orders_;  // of convolutions, where it is another in the files
  FoldedNorms norms_;
  FakeQuantizeInputs inputs_;
};

// Hands all elements of all parameters to `take` in pieces, on n_threads threads. Each has buffers
// of its own, together at most the largest parameter's bytes in BF16 or 64 KiB a thread, and no
// more than 4 MiB a thread.
struct WeightPiece {
  const ParameterSpec& parameter;
  int64_t first;
  std::span<const float> values;
  int thread;  // in [0, n_threads)
};
void read_in_pieces(const WeightReader& weights, std::span<const ParameterSpec> parameters,
                    int n_threads, const std::function<void(const WeightPiece&)>& take);

}  // namespace octet
