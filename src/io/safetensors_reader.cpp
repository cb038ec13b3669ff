#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "io/safetensors.h"

namespace octet {
namespace {

constexpr std::string_view kDtypePrefix = "octet.dtype.";

template <typename... Args>
[[noreturn]] void bad(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::bad_data, "[safetensors] {}: {}", path,
              fmt::format(format, std::forward<Args>(args)...));
}

std::vector<int64_t> parse_shape(const Json& json, const std::string& path,
                                 const std::string& name) {
  if (!json.is_array()) bad(path, "'{}': shape must be an array, got {}", name, json.type_name());
  std::vector<int64_t> shape;
  for (const Json& extent : json) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > INT64_MAX) {
      bad(path, "'{}': shape must hold integers of 0 or more, got {}", name, extent.dump());
    }
    shape.push_back(extent.get<int64_t>());
  }
  return shape;
}

// Nothing where dtype x shape overflows.
std::optional<uint64_t> bytes_of(const TensorDecl& tensor) {
  try {
    return tensor.n_bytes();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Offsets within the data, checked against its size and against dtype x shape.
StoredTensor parse_tensor(const std::string& path, const std::string& name, const Json& json,
                          uint64_t n_data_bytes) {
  const JsonObject entry(json, path + ": '" + name + "'");
  const std::string dtype = entry.string("dtype"), shape_text = entry.at("shape").dump();
  const auto stored = safe_dtype_from_name(dtype);
  if (!stored) bad(path, "'{}': dtype '{}' is not known", name, dtype);
  StoredTensor tensor{{name, *stored, parse_shape(entry.at("shape"), path, name)}};
  tensor.dtype = native_dtype(*stored);
  const Json& offsets = entry.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    bad(path, "'{}': data_offsets must be two integers of 0 or more, got {}", name, offsets.dump());
  }
  const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end || end > n_data_bytes) {
    bad(path, "'{}': expected offsets within {} data bytes, got [{}, {}]", name, n_data_bytes,
        begin, end);
  }
  const std::optional<uint64_t> n_bytes = bytes_of(tensor);
  if (!n_bytes) {
    const bool is_narrow = dtype == "F4" || dtype.starts_with("F6_");  // bits
    bad(path, "'{}': expected {}, got {}", name,
        is_narrow ? "whole bytes, fewer than 2^63" : "fewer than 2^63 bytes", shape_text);
  }
  if (*n_bytes != end - begin) {
    bad(path, "'{}': {} {} needs {} bytes, got {}", name, dtype, shape_text, *n_bytes, end - begin);
  }
  tensor.offset = begin;
  return tensor;
}

}  // namespace

SafetensorsReader SafetensorsReader::open(const Files& files, const std::string& path) {
  SafetensorsReader reader;
  reader.file_ = files.open(path);
  const uint64_t n_file = reader.file_->size();
  if (n_file < 8) bad(path, "expected at least 8 bytes, got {}", n_file);
  uint64_t n_header = 0;
  reader.file_->read_at(0, std::as_writable_bytes(std::span(&n_header, 1)));
  if (n_header > kMaxHeaderBytes) {
    std::string begin(std::min<uint64_t>(n_file, kLfsPointer.size()), '\0');
    reader.file_->read_at(0, begin);
    if (begin == kLfsPointer) bad(path, "expected tensors, got {}", kLfsAdvice);
    bad(path, "expected a header of at most {} bytes, got {}", kMaxHeaderBytes, n_header);
  }
  if (n_header > n_file - 8) {
    bad(path, "expected a header of {} bytes, got a file of {}", n_header, n_file);
  }
  std::string header(n_header, '\0');
  reader.file_->read_at(8, header);
  const uint64_t n_data = n_file - 8 - n_header;
  reader.parse_header(header, n_data);
  reader.check_coverage(8 + n_header, n_data);
  return reader;
}

void SafetensorsReader::parse_header(std::string_view header, uint64_t n_data_bytes) {
  const Json json = parse_json(header, path());
  const JsonObject checked(json, path());
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      if (entry.is_null()) continue;
      if (!entry.is_object())
        bad(path(), "__metadata__ must be an object, got {}", entry.type_name());
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string())
          bad(path(), "metadata '{}' must be a string, got {}", key, value.dump());
        metadata_[key] = value.get<std::string>();
      }
    } else {
      tensors_.push_back(parse_tensor(path(), name, entry, n_data_bytes));
    }
  }
  for (StoredTensor& tensor : tensors_) {
    const auto it = metadata_.find(std::string(kDtypePrefix) + tensor.name);
    if (it == metadata_.end()) continue;
    const auto dtype = dtype_from_name(it->second);
    if (!dtype || *dtype == Dtype::real || stored_as(*dtype) != tensor.stored) {
      bad(path(), "'{}': format '{}' cannot be stored as {}", tensor.name, it->second,
          safe_dtype_name(tensor.stored));
    }
    tensor.dtype = dtype;
  }
}

void SafetensorsReader::check_coverage(uint64_t data_offset, uint64_t n_data_bytes) {
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::make_pair(a.offset, a.n_bytes()) < std::make_pair(b.offset, b.n_bytes());
  });
  uint64_t end = 0;
  for (StoredTensor& tensor : tensors_) {
    if (tensor.offset != end) {
      bad(path(), "'{}': expected its data at offset {}, got {}", tensor.name, end, tensor.offset);
    }
    end += tensor.n_bytes();
    tensor.offset += data_offset;
  }
  if (end != n_data_bytes) bad(path(), "expected {} data bytes, got {}", end, n_data_bytes);
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const StoredTensor* SafetensorsReader::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

const StoredTensor& SafetensorsReader::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (!tensor) bad(path(), "expected tensor '{}', got none of this name", name);
  return *tensor;
}

void SafetensorsReader::read(const StoredTensor& tensor, std::span<std::byte> out,
                             uint64_t first) const {
  CHECK(first <= tensor.n_bytes() && out.size() <= tensor.n_bytes() - first);
  file_->read_at(tensor.offset + first, out);
}

std::vector<std::byte> SafetensorsReader::read(std::string_view name) const {
  const StoredTensor& tensor = at(name);
  std::vector<std::byte> bytes(tensor.n_bytes());
  read(tensor, bytes);
  return bytes;
}

}  // namespace octet
