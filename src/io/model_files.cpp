#include "io/model_files.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "formats/arrays.h"
#include "io/gguf_weights.h"

namespace octet {
namespace {

constexpr const char *kSingle = "model.safetensors", *kIndex = "model.safetensors.index.json";

constexpr uint64_t kComparedBytes = uint64_t{4} << 20;  // of two tensors, at a time

// The names under which weights are pickled: to read them is to run what they hold.
bool is_pickle_name(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"};
  return std::ranges::any_of(kSuffixes, [&](auto suffix) { return name.ends_with(suffix); });
}

[[noreturn]] void refuse_pickle(const std::string& path) {
  throw Error(ErrorCode::bad_data,
              "[model] '{}': expected a .safetensors file, got a pickle file, which is never read",
              path);
}

// A folder's own weights in pickle files; nothing where there are none.
std::optional<std::string> pickled_weights(const Files& files, const std::string& folder) {
  for (const DirectoryEntry& entry : files.list(folder)) {
    const std::string& name = entry.name;
    const bool is_weights = name.starts_with("pytorch_model") || name.starts_with("consolidated");
    if (is_pickle_name(name) && is_weights) return join_path(folder, name);
  }
  return std::nullopt;
}

}  // namespace

bool has_model_files(const Files& files, const std::string& folder) {
  return files.exists(join_path(folder, kSingle)) || files.exists(join_path(folder, kIndex)) ||
         files.exists(join_path(folder, kGgufWeights));
}

ModelFiles ModelFiles::open(const Files& files, const std::string& path) {
  ModelFiles model;
  model.path_ = path;
  const std::string single = files.is_directory(path) ? join_path(path, kSingle) : path;
  if (is_pickle_name(single)) refuse_pickle(single);
  if (files.exists(single)) {
    Shards shards{.files = {SafetensorsReader::open(files, single)}, .index = {}};
    for (const StoredTensor& tensor : shards.files[0].tensors())
      shards.index.emplace(tensor.name, 0);
    model.shards_ = std::make_shared<const Shards>(std::move(shards));
  } else if (files.is_directory(path) && files.exists(join_path(path, kIndex))) {
    model.shards_ = std::make_shared<const Shards>(open_index(files, path));
  } else if (files.is_directory(path) && files.exists(join_path(path, kGgufWeights))) {
    model.gguf_ = std::make_shared<const GgufWeights>(GgufWeights::open(files, path));
  } else {
    const auto pickled = files.is_directory(path) ? pickled_weights(files, path) : std::nullopt;
    if (pickled) refuse_pickle(*pickled);
    throw Error(
        ErrorCode::bad_data,
        "[model] '{}': expected model.safetensors or model.safetensors.index.json, got neither",
        path);
  }
  return model;
}

ModelFiles::ModelFiles(GgufWeights weights)
    : path_(weights.path()), gguf_(std::make_shared<const GgufWeights>(std::move(weights))) {}

ModelFiles::Shards ModelFiles::open_index(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, kIndex);
  const Json root = parse_json(files.read_text(path), path);
  const JsonObject index(root, path);
  Shards shards;
  std::map<std::string, size_t> opened;
  const JsonObject weight_map = index.object("weight_map");
  for (const auto& item : index.at("weight_map").items()) {
    const std::string& name = item.key();
    const std::string file = weight_map.string(name);
    const bool is_plain = file_name(file) == file && file.find('\0') == file.npos;
    if (!is_plain || file.empty() || file == "." || file == "..") {
      throw Error(ErrorCode::bad_data, "[model] {}: expected a file of the same folder, got '{}'",
                  path, file.substr(0, file.find('\0')));
    }
    if (is_pickle_name(file)) refuse_pickle(join_path(folder, file));
    const auto [it, is_new] = opened.emplace(file, shards.files.size());
    if (is_new) shards.files.push_back(SafetensorsReader::open(files, join_path(folder, file)));
    shards.files[it->second].at(name);  // throws unless the shard has it
    shards.index.emplace(name, it->second);
  }
  return shards;
}

std::vector<std::string> ModelFiles::names() const {
  if (gguf_) return gguf_->names();
  std::vector<std::string> names;
  for (const auto& [name, shard] : shards_->index) names.push_back(name);
  return names;
}

const StoredTensor* ModelFiles::find(std::string_view name) const {
  if (gguf_) return gguf_->find(name);
  const auto it = shards_->index.find(name);
  return it == shards_->index.end() ? nullptr : shards_->files[it->second].find(name);
}

const StoredTensor& ModelFiles::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor != nullptr) return *tensor;
  throw Error(ErrorCode::bad_data, "[model] '{}': expected tensor '{}', got none of this name",
              path_, name);
}

const std::string& ModelFiles::file_of(std::string_view name) const {
  if (gguf_) return path_;
  const auto it = shards_->index.find(name);
  return it == shards_->index.end() ? path_ : shards_->files[it->second].path();
}

void ModelFiles::read(std::string_view name, std::span<std::byte> out, uint64_t first) const {
  const StoredTensor& tensor = at(name);
  if (!gguf_) return shards_->files[shards_->index.find(name)->second].read(tensor, out, first);
  CHECK(first % sizeof(float) == 0 && out.size() % sizeof(float) == 0);
  std::vector<float> values(out.size() / sizeof(float));
  gguf_->read(name, static_cast<int64_t>(first / sizeof(float)), values);
  std::ranges::copy(std::as_bytes(std::span(values)), out.begin());
}

void ModelFiles::read_values(std::string_view name, int64_t first, std::span<float> out) const {
  const Dtype dtype = at(name).dtype.value();
  const auto width = static_cast<size_t>(bytes_of(dtype, 1));
  std::vector<std::byte> bytes(out.size() * width);
  read(name, bytes, static_cast<uint64_t>(first) * width);
  decode_values(dtype, bytes, out);
}

std::vector<float> ModelFiles::read_values(std::string_view name) const {
  return decode_values(at(name).dtype.value(), read(name));
}

bool ModelFiles::are_equal(std::string_view name, std::string_view other) const {
  const uint64_t n_bytes = at(name).n_bytes();
  if (at(other).n_bytes() != n_bytes) return false;
  std::vector<std::byte> one, two;
  for (uint64_t first = 0; first < n_bytes; first += one.size()) {
    one.resize(static_cast<size_t>(std::min(kComparedBytes, n_bytes - first)));
    two.resize(one.size());
    read(name, one, first);
    read(other, two, first);
    if (one != two) return false;
  }
  return true;
}

std::vector<std::byte> ModelFiles::read(std::string_view name) const {
  std::vector<std::byte> bytes(at(name).n_bytes());
  read(name, bytes);
  return bytes;
}

}  // namespace octet
