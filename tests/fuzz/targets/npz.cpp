#include "data/npz.h"

#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"

namespace octet::fuzz {

void npz(std::string_view bytes) {
  const MemoryFiles files("a.npz", std::string(bytes));
  is_refused([&] {
    for (const auto& [name, array] : read_npz(files, "a.npz")) {
      uint64_t n = 1;
      for (const int64_t length : array.shape) n *= static_cast<uint64_t>(length);
      expect(n == 0 || array.bytes.size() % n == 0, "as many bytes as its shape");
    }
  });
}

}  // namespace octet::fuzz
