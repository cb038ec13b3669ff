#include "io/safetensors.h"
#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"

namespace octet::fuzz {
namespace {

// The same tensors in a file of our own.
std::string written_again(const SafetensorsReader& reader) {
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorSource> sources;
  for (const StoredTensor& tensor : reader.tensors()) {
    data.push_back(reader.read(tensor.name));
    sources.push_back(span_source(tensor, data.back()));
  }
  MemoryFiles files;
  write_safetensors(*files.create("b"), sources, reader.metadata());
  return files.bytes("b");
}

}  // namespace

void safetensors(std::string_view bytes) {
  is_refused([&] {
    const MemoryFiles files("a", bytes);
    const SafetensorsReader reader = SafetensorsReader::open(files, "a");
    const MemoryFiles copy("b", written_again(reader));
    const SafetensorsReader again = SafetensorsReader::open(copy, "b");
    expect(again.tensors().size() == reader.tensors().size(), "as many tensors");
    for (const StoredTensor& tensor : reader.tensors()) {
      const StoredTensor& other = again.at(tensor.name);
      expect(other.stored == tensor.stored && other.dtype == tensor.dtype, "the same dtype");
      expect(other.shape == tensor.shape, "the same shape");
      expect(again.read(tensor.name) == reader.read(tensor.name), "the same bytes");
    }
  });
}

}  // namespace octet::fuzz
