#include "io/gguf_weights.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "io/gguf_rows.h"

namespace octet {

void read_gguf_rows(const GgufReader& file, const GgufTensor& tensor, int64_t head_dim,
                    int64_t first, std::span<float> out) {
  if (head_dim == 0) return file.read(tensor, first, out);
  const int64_t cols = tensor.shape.size() == 1 ? 1 : tensor.shape.back();
  const auto n = std::ssize(out);
  for (int64_t at = 0; at < n;) {
    const int64_t row = (first + at) / cols, col = (first + at) % cols;
    const int64_t length = std::min(n - at, cols - col);
    file.read(tensor, row_in_file(row, head_dim) * cols + col,
              out.subspan(static_cast<size_t>(at), static_cast<size_t>(length)));
    at += length;
  }
}

std::string gguf_weights_text(const std::string& file,
                              const std::map<std::string, GgufPlace>& tensors) {
  Json places = Json::object();
  for (const auto& [parameter, place] : tensors)
    places[parameter] = {{"name", place.name}, {"head_dim", place.head_dim}};
  return Json({{"file", file}, {"tensors", places}}).dump(1) + "\n";
}

GgufWeights GgufWeights::open(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, kGgufWeights);
  const Json root = parse_json(files.read_text(path), path);
  const auto bad = [&](const std::string& what) {
    throw Error(ErrorCode::bad_data, "[gguf] {}: {}", path, what);
  };
  std::string file;
  std::map<std::string, GgufPlace> places;
  try {
    file = root.at("file").get<std::string>();
    for (const auto& item : root.at("tensors").items()) {
      places[item.key()] = {item.value().at("name").get<std::string>(),
                            item.value().at("head_dim").get<int64_t>()};
    }
  } catch (const Json::exception& error) {
    bad(fmt::format("expected a file and its tensors, got {}", error.what()));
  }
  if (!files.exists(file)) bad(fmt::format("expected the GGUF file '{}', got none", file));
  GgufWeights weights(GgufReader::open(files, file));
  for (const auto& [parameter, place] : places) {
    const GgufTensor* tensor = weights.file_.find(place.name);
    if (tensor == nullptr)
      bad(fmt::format("expected '{}' in '{}', got no such tensor", place.name, file));
    const int64_t n_rows = tensor->shape.empty() ? 0 : tensor->shape.front();
    if (place.head_dim != 0 &&
        (place.head_dim < 2 || place.head_dim % 2 != 0 || n_rows % place.head_dim != 0))
      bad(fmt::format("expected heads of '{}' [{}], got a width of {}", place.name,
                      fmt::join(tensor->shape, ", "), place.head_dim));
    Tensor& own = weights.tensors_[parameter];
    static_cast<TensorDecl&>(own.stored) = tensor_decl(parameter, Dtype::f32, tensor->shape);
    own.stored.dtype = Dtype::f32;
    own.in_file = tensor;
    own.head_dim = place.head_dim;
  }
  return weights;
}

std::vector<std::string> GgufWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

const StoredTensor* GgufWeights::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second.stored;
}

void GgufWeights::read(std::string_view name, int64_t first, std::span<float> out) const {
  const Tensor& tensor = tensors_.find(name)->second;
  read_gguf_rows(file_, *tensor.in_file, tensor.head_dim, first, out);
}

}  // namespace octet
