// Blocks of GGUF's types against the gguf package (tools/make_gguf_goldens.py), bit by bit.
#include "io/gguf_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <sstream>
#include <vector>

#include "base/files.h"

namespace octet::io_gguf_blocks_test {
namespace {

const std::string kBlockGoldens = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/gguf/blocks.txt";

uint64_t hex_number(std::string_view digits) {
  uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

const GgufBlock& block_named(const std::string& name) {
  for (uint32_t type = 0; type < 64; ++type) {
    const GgufBlock* block = find_gguf_block(type);
    if (block != nullptr && block->name == name) return *block;
  }
  ADD_FAILURE() << "no type " << name;
  return *find_gguf_block(0);
}

TEST(GgufBlocks, decode_to_the_bits_of_the_gguf_package) {
  std::istringstream lines(posix_files().read_text(kBlockGoldens));
  std::string line;
  int n_types = 0;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string name, bytes, values;
    words >> name >> bytes >> values;
    if (values.empty()) continue;
    ++n_types;
    const GgufBlock& block = block_named(name);
    const auto n_blocks = static_cast<int64_t>(bytes.size()) / 2 / block.bytes;
    ASSERT_EQ(n_blocks * block.elems * 8, static_cast<int64_t>(values.size())) << name;
    std::vector<std::byte> raw;
    for (size_t i = 0; i < bytes.size(); i += 2)
      raw.push_back(static_cast<std::byte>(hex_number(std::string_view(bytes).substr(i, 2))));
    for (int64_t i = 0; i < n_blocks; ++i) {
      float out[kMaxGgufBlock];
      block.decode(raw.data() + i * block.bytes, out);
      for (int64_t j = 0; j < block.elems; ++j) {
        const auto at = static_cast<size_t>((i * block.elems + j) * 8);
        ASSERT_EQ(std::bit_cast<uint32_t>(out[j]),
                  hex_number(std::string_view(values).substr(at, 8)))
            << name << " block " << i << " element " << j;
      }
    }
  }
  EXPECT_EQ(n_types, 12);
}

// The numbers of tools/make_gguf_goldens.py.
std::vector<float> numbers_of_blocks(int n_blocks) {
  uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int64_t>(state >> 33);
  };
  std::vector<float> values;
  for (int block = 0; block < n_blocks; ++block) {
    int64_t drawn[33];
    for (int64_t& number : drawn) number = next();
    const float scale = std::ldexp(1.0f, static_cast<int>(-20 - drawn[32] % 40));
    for (int i = 0; i < 32; ++i)
      values.push_back(
          block % 100 == 0 ? 0 : static_cast<float>(drawn[i] - (int64_t{1} << 30)) * scale);
  }
  return values;
}

TEST(GgufBlocks, q8_0_has_the_bytes_of_the_reference_quantizer) {
  const std::vector<float> values = numbers_of_blocks(10000);
  std::vector<std::byte> out(values.size() / 32 * 34);
  encode_q8_0(values, out);
  uint64_t digest = 0xCBF29CE484222325ull;
  for (const std::byte byte : out)
    digest = (digest ^ static_cast<uint64_t>(byte)) * 0x100000001B3ull;
  const std::string goldens = posix_files().read_text(kBlockGoldens);
  const size_t last = goldens.rfind("Q8_0 ");
  EXPECT_EQ(digest, hex_number(std::string_view(goldens).substr(last + 5, 16)));
}

TEST(GgufBlocks, q8_0_of_numbers_too_small_for_a_scale_is_zeros) {
  std::vector<float> values(32, 1e-45f);
  std::vector<std::byte> out(34, std::byte{0xAA});
  encode_q8_0(values, out);
  EXPECT_EQ(out, std::vector<std::byte>(34, std::byte{0}));
}

}  // namespace
}  // namespace octet::io_gguf_blocks_test
