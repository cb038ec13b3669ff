// Every table and case of the shared vectors (made from exact rationals), bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/codec.h"

namespace octet::golden_vectors {
namespace {

const std::string kFolder = std::string(OCTET_TEST_DATA) + "/vectors/";

class Vectors : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::ifstream(kFolder + "manifest.json")) {
      GTEST_SKIP() << "no shared vectors in " << kFolder;
    }
  }
};

nlohmann::json read_json(const std::string& name) {
  std::ifstream file(kFolder + name);
  return nlohmann::json::parse(file);
}

template <typename T>
std::vector<T> read_words(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<T> words(bytes.size() / sizeof(T));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(T));
  return words;
}

std::vector<uint32_t> read_codes(const std::string& name, int width) {
  if (width == 2) {
    const auto words = read_words<uint16_t>(name);
    return {words.begin(), words.end()};
  }
  const auto words = read_words<uint8_t>(name);
  return {words.begin(), words.end()};
}

TEST_F(Vectors, decode_tables_agree) {
  for (const char* name : {"e4m3", "e5m2", "hif8", "e8m0", "de8s", "de8u"}) {
    const auto table = read_json(std::string("decode_") + name + ".json")["decode"];
    ASSERT_GE(table.size(), 255u);
    for (uint32_t code = 0; code < table.size(); ++code) {
      const std::string text = table[code];
      const float got = decode(*dtype_from_name(name), code);
      if (text == "nan") {
        EXPECT_TRUE(std::isnan(got)) << name << " " << code;
      } else {
        EXPECT_EQ(bits_of(got), bits_of(std::strtof(text.c_str(), nullptr))) << name << " " << code;
      }
    }
  }
}

TEST_F(Vectors, thresholds_are_where_the_code_changes) {
  const auto all = read_json("thresholds.json");
  for (const auto& [name, table] : all.items()) {
    const Dtype dtype = *dtype_from_name(name.substr(0, 4));
    const Rounding rounding = *rounding_from_name(name.substr(5));
    for (size_t i = 0; i < table["first_f32_bits"].size(); ++i) {
      if (table["first_f32_bits"][i].is_null()) {  // toward zero: no finite value overflows
        EXPECT_EQ(encode(dtype, float_of(kF32Inf - 1), rounding, {.saturate = false}),
                  table["codes"][i].get<uint32_t>())
            << name;
        continue;
      }
      const std::string hex = table["first_f32_bits"][i];
      const uint32_t first = static_cast<uint32_t>(std::stoul(hex, nullptr, 16));
      const bool last = i + 1 == table["codes"].size();
      const EncodeOptions options{.saturate = false};
      const uint32_t above =
          last ? find_format(dtype).overflow_code : table["codes"][i + 1].get<uint32_t>();
      EXPECT_EQ(encode(dtype, float_of(first), rounding, options), above) << name << " " << hex;
      EXPECT_EQ(encode(dtype, float_of(first - 1), rounding, options),
                table["codes"][i].get<uint32_t>())
          << name << " " << hex;
    }
  }
}

float source_value(const std::string& source, const std::vector<uint32_t>& inputs, size_t i) {
  if (source == "f32") return float_of(inputs[i]);
  return decode(*dtype_from_name(source), static_cast<uint32_t>(i));
}

TEST_F(Vectors, encode_cases_agree) {
  const auto inputs = read_words<uint32_t>("inputs_f32.bin");
  const auto random = read_words<uint32_t>("rbits.bin");
  int files = 0;
  const auto manifest = read_json("manifest.json");
  for (const auto& [name, info] : manifest["files"].items()) {
    if (!info.contains("fmt")) continue;
    ++files;
    const std::string source = info.value("src", "f32");
    const Dtype dtype = *dtype_from_name(info["fmt"].get<std::string>());
    const Rounding rounding = *rounding_from_name(info["mode"].get<std::string>());
    const auto codes = read_codes(name, info["width"]);
    ASSERT_EQ(codes.size(), source == "f32" ? inputs.size() : 65536u) << name;
    EncodeOptions options{.saturate = info.value("sat", true),
                          .nan_to_zero = info.value("nan0", false),
                          .source = *dtype_from_name(source)};
    int wrong = 0;
    for (size_t i = 0; i < codes.size(); ++i) {
      if (source == "f32") options.random_bits = random[i];
      const float x = source_value(source, inputs, i);
      const uint32_t got = encode(dtype, x, rounding, options);
      if (got != codes[i] && ++wrong <= 3) {
        ADD_FAILURE() << name << " " << std::hexfloat << x << " got " << got << " want "
                      << codes[i];
      }
    }
    EXPECT_EQ(wrong, 0) << name;
  }
  EXPECT_GE(files, 40);
}

}  // namespace
}  // namespace octet::golden_vectors
