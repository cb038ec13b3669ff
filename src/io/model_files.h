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

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;                 // sorted
  const StoredTensor* find(std::string_view name) const;  // null when absent
  const StoredTensor& at(std::string_view name) const;    // Error when absent

  // Bytes [first, first + out.size()) of a tensor.
  void read(std::string_view name, std::span<std::byte> out, uint64_t first = 0) const;
  std::vector<std::byte> read(std::string_view name) const;
  // True if two tensors have the same bytes.
  bool are_equal(std::string_view name, std::string_view other) const;

 private:
  void open_index(const Files& files, const std::string& index_path);

  std::string path_;
  std::shared_ptr<const GgufWeights> gguf_;  // in place of shards; shared: readers are copied
  std::vector<SafetensorsReader> shards_;
  std::map<std::string, size_t, std::less<>> shard_index_;
};

// True if a folder holds what ModelFiles::open looks for; a configuration alone is a model as well.
bool has_model_files(const Files& files, const std::string& folder);

}  // namespace octet
