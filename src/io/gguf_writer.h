// Writes a GGUF file, version 3, little-endian, tensors aligned to 32 bytes. Source: the GGUF
// specification.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/gguf_keys.h"
#include "io/gguf_blocks.h"
#include "io/safetensors.h"

namespace octet {

struct GgufTensorSource {
  std::string name;
  std::vector<int64_t> shape;  // row-major; rows are whole blocks
  GgmlType type = GgmlType::f32;
  std::function<void(const ByteSink&)> emit;

  uint64_t n_bytes() const;
};

// All that comes before the tensors' bytes.
std::string gguf_header_bytes(const GgufKeys& keys, std::span<const GgufTensorSource> tensors);
// CHECKs that each tensor emits the bytes of its type and shape.
void write_gguf(FileWriter& out, std::string_view header,
                std::span<const GgufTensorSource> tensors);

}  // namespace octet
