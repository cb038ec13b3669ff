#include "cli/quantized_file.h"

#include "fuzz/fuzz_targets.h"
#include "fuzz/memory_files.h"

namespace octet::fuzz {

// The bytes as a file of quantized data: refused, or a value for each of its codes, the same each
// time.
void quantized(std::string_view bytes) {
  is_refused([&] {
    const MemoryFiles files("a", bytes);
    const SafetensorsReader reader = SafetensorsReader::open(files, "a");
    const std::vector<float> once = dequantize_file(reader);
    expect(once.size() == reader.at("codes").n_bytes(), "a value for each code");
    const std::vector<float> again = dequantize_file(reader);
    expect(std::memcmp(once.data(), again.data(), once.size() * sizeof(float)) == 0,
           "the same values");
  });
}

}  // namespace octet::fuzz
