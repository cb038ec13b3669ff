#include "io/gguf_writer.h"

#include "base/error.h"

namespace octet {
namespace {

constexpr uint64_t kGgufAlignment = 32;

uint64_t aligned(uint64_t n) {
  return (n + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

}  // namespace

uint64_t GgufTensorSource::n_bytes() const {
  const GgufBlock& block = *find_gguf_block(static_cast<uint32_t>(type));
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  CHECK(shape.back() % block.elems == 0);
  return static_cast<uint64_t>(n / block.elems * block.bytes);
}

std::string gguf_header_bytes(const GgufKeys& keys, std::span<const GgufTensorSource> tensors) {
  std::string bytes = "GGUF";
  put_gguf(bytes, uint32_t{3});
  put_gguf(bytes, uint64_t{tensors.size()});
  put_gguf(bytes, keys.size());
  bytes += keys.bytes();
  uint64_t offset = 0;
  for (const GgufTensorSource& tensor : tensors) {
    put_gguf_text(bytes, tensor.name);
    put_gguf(bytes, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t axis = tensor.shape.size(); axis-- > 0;)
      put_gguf(bytes, static_cast<uint64_t>(tensor.shape[axis]));
    put_gguf(bytes, static_cast<uint32_t>(tensor.type));
    put_gguf(bytes, offset);
    offset += aligned(tensor.n_bytes());
  }
  bytes.resize(aligned(bytes.size()), '\0');
  return bytes;
}

void write_gguf(FileWriter& out, std::string_view header,
                std::span<const GgufTensorSource> tensors) {
  constexpr std::byte kZeros[kGgufAlignment] = {};
  out.write(std::as_bytes(std::span(header)));
  for (const GgufTensorSource& tensor : tensors) {
    uint64_t n_written = 0;
    tensor.emit([&](std::span<const std::byte> bytes) {
      n_written += bytes.size();
      out.write(bytes);
    });
    CHECK(n_written == tensor.n_bytes());
    out.write(std::span(kZeros).first(aligned(n_written) - n_written));
  }
}

}  // namespace octet
