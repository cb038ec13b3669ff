#include "io/gguf_weights.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "io/gguf_rows.h"

namespace octet {
namespace {

[[noreturn]] void bad_places(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::bad_data, "[gguf] {}: {}", path, what);
}

}  // namespace

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
  std::string file;
  std::map<std::string, GgufPlace> places;
  try {
    file = root.at("file").get<std::string>();
    for (const auto& item : root.at("tensors").items()) {
      places[item.key()] = {item.value().at("name").get<std::string>(),
                            item.value().at("head_dim").get<int64_t>()};
    }
  } catch (const Json::exception& error) {
    bad_places(path, fmt::format("expected a file and its tensors, got {}", error.what()));
  }
  if (!files.exists(file))
    bad_places(path, fmt::format("expected the GGUF file '{}', got none", file));
  return {GgufReader::open(files, file), places, path};
}

GgufWeights::GgufWeights(GgufReader file, const std::map<std::string, GgufPlace>& places,
                         const std::string& said_by)
    : file_(std::move(file)) {
  for (const auto& [parameter, place] : places) {
    const GgufTensor* tensor = file_.find(place.name);
    if (tensor == nullptr) {
      bad_places(said_by, fmt::format("expected '{}' in '{}', got no such tensor", place.name,
                                      file_.path()));
    }
    const int64_t n_rows = tensor->shape.empty() ? 0 : tensor->shape.front();
    if (place.head_dim != 0 &&
        (place.head_dim < 2 || place.head_dim % 2 != 0 || n_rows % place.head_dim != 0)) {
      bad_places(said_by, fmt::format("expected heads of '{}' [{}], got a width of {}", place.name,
                                      fmt::join(tensor->shape, ", "), place.head_dim));
    }
    Tensor& own = tensors_[parameter];
    static_cast<TensorDecl&>(own.stored) = tensor_decl(parameter, Dtype::f32, tensor->shape);
    own.stored.dtype = Dtype::f32;
    own.in_file = tensor;
    own.head_dim = place.head_dim;
  }
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
  const GgufTensor& in_file = *tensor.in_file;
  if (tensor.head_dim == 0) return file_.read(in_file, first, out);
  const int64_t cols = in_file.shape.size() == 1 ? 1 : in_file.shape.back();
  read_rows(
      cols, first, out, [&](int64_t row) { return row_in_file(row, tensor.head_dim); },
      [&](int64_t at, std::span<float> part) { file_.read(in_file, at, part); });
}

}  // namespace octet
