#include "io/checkpoint_parts.h"

#include "base/error.h"
#include "base/hash.h"
#include "io/in_a_thread.h"

namespace octet {

uint64_t write_part(Files& files, const std::string& path, const SafetensorsLayout& layout,
                    FileHeader header) {
  const auto file = files.open_ranges(path);
  PositionalHash hash;
  const auto write = [&](uint64_t at, std::span<const std::byte> bytes) {
    hash_beside(
        bytes.size(), [&] { hash.update(at, bytes); }, [&] { file->write_at(at, bytes); });
  };
  if (header == FileHeader::yes) write(0, as_bytes(layout.header));
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const TensorSource& tensor = *layout.tensors[i];
    const TensorPart part = tensor.part.value_or(TensorPart{0, tensor.decl.n_bytes()});
    CHECK(part.first + part.n_bytes <= tensor.decl.n_bytes());
    if (part.n_bytes == 0) continue;
    uint64_t at = layout.offsets[i] + part.first;
    const uint64_t end = at + part.n_bytes;
    tensor.emit([&](std::span<const std::byte> bytes) {
      CHECK(bytes.size() <= end - at);
      write(at, bytes);
      at += bytes.size();
    });
    CHECK(at == end);
  }
  file->sync();
  file->close();
  return hash.digest();
}

}  // namespace octet
