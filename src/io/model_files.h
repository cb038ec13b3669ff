// The weights of a Hugging Face model folder: model.safetensors, the shards that
// model.safetensors.index.json names, or a GGUF file beside its folder (io/gguf_weights.h). Headers
// are read at once, tensors when asked for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace octet {

class GgufWeights;

class ModelFiles {
 public:
  // `path` is a model folder or one .safetensors file. Throws Error{bad_data} where the index and
  // the shards disagree, the index names a file outside the folder, or the weights are pickled.
  static ModelFiles open(const Files& files, const std::string& path);

  // The tensors of an open GGUF file, by the names of parameters.
  explicit ModelFiles(GgufWeights weights);

  const std::string& path() const { return path_; }
  const std::string& file_of(std::string_view name) const;  // that the tensor lies in
  std::vector<std::string> names() const;                   // sorted
  const StoredTensor* find(std::string_view name) const;    // null when absent
  const StoredTensor& at(std::string_view name) const;      // Error when absent

  // Bytes [first, first + out.size()) of a tensor.
  void read(std::string_view name, std::span<std::byte> out, uint64_t first = 0) const;
  std::vector<std::byte> read(std::string_view name) const;
  // Elements [first, first + out.size()) of a tensor that has a dtype, exact, without scales.
  void read_values(std::string_view name, int64_t first, std::span<float> out) const;
  std::vector<float> read_values(std::string_view name) const;
  // Whether two tensors have the same bytes.
  bool are_equal(std::string_view name, std::string_view other) const;

 private:
  struct Shards {
    std::vector<SafetensorsReader> files;
    std::map<std::string, size_t, std::less<>> index;
  };
  ModelFiles() = default;
  static Shards open_index(const Files& files, const std::string& folder);

  std::string path_;
  // One of the two; shared, so that readers can be copied into what reads later.
  std::shared_ptr<const GgufWeights> gguf_;
  std::shared_ptr<const Shards> shards_;
};

// True if a folder holds what ModelFiles::open looks for; a configuration alone is a model as well.
bool has_model_files(const Files& files, const std::string& folder);

}  // namespace octet
