// The weights of a Hugging Face model folder: model.safetensors, or the shards that
// model.safetensors.index.json names. Headers are read at once, tensors when asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace octet {

class ModelFiles {
 public:
  // `path` is a model folder or one .safetensors file. Throws Error{bad_data} where the index and
  // the shards disagree, the index names a file outside the folder, or the weights are pickled.
  static ModelFiles open(const Files& files, const std::string& path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;                 // sorted
  const StoredTensor* find(std::string_view name) const;  // null when absent
  const StoredTensor& at(std::string_view name) const {   // Error when absent
    return shard_of(name).at(name);
  }

  // Bytes [first, first + out.size()) of a tensor.
  void read(std::string_view name, std::span<std::byte> out, uint64_t first = 0) const;
  std::vector<std::byte> read(std::string_view name) const { return shard_of(name).read(name); }

 private:
  const SafetensorsReader& shard_of(std::string_view name) const;
  void open_index(const Files& files, const std::string& index_path);

  std::string path_;
  std::vector<SafetensorsReader> shards_;
  std::map<std::string, size_t, std::less<>> shard_index_;
};

// Whether a folder holds what ModelFiles::open looks for; a configuration alone is a model as well.
bool has_model_files(const Files& files, const std::string& folder);

}  // namespace octet
