#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "io/safetensors.h"

namespace octet {

SafetensorsLayout::SafetensorsLayout(std::span<const TensorSource> sources,
                                     std::map<std::string, std::string> metadata)
    : tensors(in_file_order(sources)) {
  metadata.emplace("format", "pt");  // Hugging Face's loaders insist on it
  for (const TensorSource* tensor : tensors) {
    const TensorDecl& decl = tensor->decl;
    if (decl.dtype && native_dtype(decl.stored) != decl.dtype)
      metadata["octet.dtype." + decl.name] = dtype_name(*decl.dtype);
  }
  // An ordered object, so that the header lists the tensors as they lie.
  nlohmann::ordered_json json = {{"__metadata__", metadata}};
  auto& members = json.get_ref<nlohmann::ordered_json::object_t&>();
  std::set<std::string> names;
  uint64_t n_data = 0;
  for (const TensorSource* tensor : tensors) {
    const TensorDecl& decl = tensor->decl;
    CHECK(decl.name != "__metadata__" && names.insert(decl.name).second);
    offsets.push_back(n_data);
    n_data += decl.n_bytes();
    nlohmann::ordered_json entry = {{"dtype", safe_dtype_name(decl.stored)},
                                    {"shape", decl.shape},
                                    {"data_offsets", {offsets.back(), n_data}}};
    members.emplace_back(decl.name, std::move(entry));  // operator[] would go through all before
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data then starts at a multiple of 8
  CHECK(text.size() <= kMaxHeaderBytes);
  const uint64_t n_text = text.size();
  header = std::string(reinterpret_cast<const char*>(&n_text), sizeof(n_text)) + text;
  for (uint64_t& offset : offsets) offset += header.size();
  n_bytes = header.size() + n_data;
}

TensorSource span_source(TensorDecl decl, std::span<const std::byte> bytes) {
  CHECK(decl.n_bytes() == bytes.size());
  return {.decl = std::move(decl), .emit = [bytes](const ByteSink& sink) { sink(bytes); }};
}

std::vector<const TensorSource*> in_file_order(std::span<const TensorSource> tensors) {
  std::vector<const TensorSource*> order;
  order.reserve(tensors.size());
  for (const TensorSource& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorSource* a, const TensorSource* b) {
    return element_width(a->decl.stored) > element_width(b->decl.stored);
  });
  return order;
}

void write_safetensors(FileWriter& out, std::span<const TensorSource> tensors,
                       std::map<std::string, std::string> metadata) {
  const SafetensorsLayout layout(tensors, std::move(metadata));
  out.write(as_bytes(layout.header));
  for (const TensorSource* tensor : layout.tensors) {
    uint64_t n_bytes = 0;
    tensor->emit([&](std::span<const std::byte> bytes) {
      n_bytes += bytes.size();
      out.write(bytes);
    });
    CHECK(n_bytes == tensor->decl.n_bytes());
  }
}

}  // namespace octet
