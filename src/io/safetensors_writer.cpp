#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "io/safetensors.h"

namespace octet {

namespace {

// The header and its length before it; adds the tensors' bytes to n_data.
std::string header_of(std::span<const TensorDecl> tensors,
                      std::map<std::string, std::string> metadata, uint64_t& n_data) {
  // An ordered object, so that the header lists the tensors as they lie.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const TensorDecl& tensor : tensors) {
    if (tensor.dtype && native_dtype(tensor.stored) != tensor.dtype) {
      metadata["octet.dtype." + tensor.name] = dtype_name(*tensor.dtype);
    }
  }
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names;
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  for (const TensorDecl& tensor : tensors) {
    CHECK(tensor.name != "__metadata__" && names.insert(tensor.name).second);
    const uint64_t n_bytes = tensor.n_bytes();
    nlohmann::ordered_json entry = {{"dtype", safe_dtype_name(tensor.stored)},
                                    {"shape", tensor.shape},
                                    {"data_offsets", {n_data, n_data + n_bytes}}};
    members.emplace_back(tensor.name, std::move(entry));  // operator[] would go through all before
    n_data += n_bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data then starts at a multiple of 8
  CHECK(text.size() <= kMaxHeaderBytes);
  const uint64_t n_header = text.size();
  return std::string(reinterpret_cast<const char*>(&n_header), sizeof(n_header)) + text;
}

std::vector<TensorDecl> declarations(std::span<const TensorSource* const> tensors) {
  std::vector<TensorDecl> decls;
  decls.reserve(tensors.size());
  for (const TensorSource* tensor : tensors) decls.push_back(tensor->decl);
  return decls;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(FileWriter& out, const std::vector<TensorDecl>& tensors,
                                     std::map<std::string, std::string> metadata)
    : out_(out) {
  out_.write(as_bytes(header_of(tensors, std::move(metadata), n_left_)));
}

SafetensorsLayout::SafetensorsLayout(std::span<const TensorSource> sources,
                                     std::map<std::string, std::string> metadata)
    : tensors(in_file_order(sources)) {
  metadata.emplace("format", "pt");  // Hugging Face's loaders insist on it
  uint64_t n_data = 0;
  header = header_of(declarations(tensors), std::move(metadata), n_data);
  uint64_t at = header.size();
  for (const TensorSource* tensor : tensors) {
    offsets.push_back(at);
    at += tensor->decl.n_bytes();
  }
  n_bytes = at;
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  CHECK(bytes.size() <= n_left_);
  n_left_ -= bytes.size();
  out_.write(bytes);
}

void SafetensorsWriter::finish() {
  CHECK(n_left_ == 0);
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
