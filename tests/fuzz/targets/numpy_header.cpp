#include "data/numpy_header.h"

#include <algorithm>

#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"

namespace octet::fuzz {

// The bytes follow NumPy's magic.
void numpy_header(std::string_view bytes) {
  const MemoryFiles files("a.npy", "\x93NUMPY" + std::string(bytes));
  const auto file = files.open("a.npy");
  expect(has_numpy_magic(*file), "the magic");
  is_refused([&] {
    const NumpyHeader header = read_numpy_header(*file);
    expect(std::ranges::all_of(header.shape, [](int64_t n) { return n >= 0; }) &&
               header.offset <= file->size(),
           "a header within the file");
  });
}

}  // namespace octet::fuzz
