// Files of arrays for tests.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.h"

namespace octet::test {

struct ArrayToPut {
  TensorDecl decl;
  std::vector<std::byte> bytes;
};

template <typename T>
ArrayToPut array_of(std::string name, SafeDtype stored, std::vector<int64_t> shape,
                    const std::vector<T>& values) {
  ArrayToPut array{{.name = std::move(name), .stored = stored, .shape = std::move(shape)}, {}};
  const auto bytes = std::as_bytes(std::span(values));
  array.bytes.assign(bytes.begin(), bytes.end());
  return array;
}

inline std::string put_arrays(const std::string& path, const std::vector<ArrayToPut>& arrays) {
  std::vector<TensorSource> sources;
  for (const ArrayToPut& array : arrays) sources.push_back(span_source(array.decl, array.bytes));
  write_atomically(posix_files(), path, [&](FileWriter& out) { write_safetensors(out, sources); });
  return path;
}

}  // namespace octet::test
