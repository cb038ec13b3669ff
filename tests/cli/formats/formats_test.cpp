// octet formats as a user calls it: raw bytes in, raw bytes out.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/philox.h"
#include "cli/program_run.h"
#include "formats/codec.h"
#include "formats/quantize.h"

namespace octet::formats_command {
namespace {

using test::Outcome;

// Runs `octet formats ARGUMENTS` with `input` on a pipe.
Outcome run(const std::string& arguments, const std::string& input = "") {
  const test::ScratchFolder folder;
  const std::string file = folder.put("in", input);
  return test::run_shell(folder, "cat " + file + " | " OCTET_PROGRAM " formats " + arguments);
}

template <typename T>
std::string bytes_of(const std::vector<T>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(T)};
}

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::vector<float> samples(int n) {
  const RandomStream random{.name = name_hash("formats_test")};
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) x[i] = random.normal(i);
  return x;
}

TEST(formats_command, list_names_every_format) {
  const auto rows = nlohmann::json::parse(run("list --json").out);
  ASSERT_EQ(rows.size(), static_cast<size_t>(kFormatCount));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["format"], std::string(dtype_name(kFormats[i].dtype)));
    EXPECT_EQ(rows[i]["max_finite"].get<double>(), max_finite(kFormats[i].dtype));
  }
}

TEST(formats_command, table_gives_the_value_of_every_code) {
  const auto rows = nlohmann::json::parse(run("table hif8 --json").out);
  ASSERT_EQ(rows.size(), 256u);
  EXPECT_EQ(rows[0x6E]["value"], 32768);
  EXPECT_EQ(rows[0x6F]["value"], "inf");
  EXPECT_EQ(rows[0x80]["value"], "nan");
}

TEST(formats_command, encode_and_decode_are_those_of_the_library) {
  const std::vector<float> x = samples(1000);
  for (const FormatRow& row : kFormats) {
    const std::string name(dtype_name(row.dtype));
    const std::string rounding(rounding_name(row.nearest));
    const Outcome codes = run("encode --format " + name + " --rounding " + rounding, bytes_of(x));
    ASSERT_EQ(codes.code, 0) << codes.err;
    ASSERT_EQ(codes.out.size(), x.size() * dtype_bytes(row.dtype));
    const std::vector<float> back = floats_of(run("decode --format " + name, codes.out).out);
    ASSERT_EQ(back.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(back[i], decode(row.dtype, encode(row.dtype, x[i], row.nearest)));
    }
  }
}

TEST(formats_command, flags_choose_source_saturation_and_random_bits) {
  const std::vector<uint16_t> halves = {0x7C00, 0x3C01, 0xFE00};  // Inf, 1 + 2^-10, NaN
  EXPECT_EQ(
      run("encode --format e5m2 --rounding rne --from f16 --no-saturate", bytes_of(halves)).out,
      "\x7C\x3C\x7F");
  EXPECT_EQ(
      run("encode --format hif8 --rounding ta --from f16 --nan-to-zero", bytes_of(halves)).out,
      std::string("\x6E\x08\x00", 3));
  const std::vector<float> x = {1.01f, 1.01f};
  const test::ScratchFolder folder;
  const std::string bits = folder.put("bits", bytes_of(std::vector<uint32_t>{0u, 0xFFFFFFFFu}));
  EXPECT_EQ(run("encode --format e4m3 --rounding sr --bits " + bits, bytes_of(x)).out, "\x38\x39");
  const Outcome few = run("encode --format e4m3 --rounding sr --bits " + bits, "0123");
  EXPECT_EQ(few.code, 3);
}

// Finite overflow and Inf apart, as Micikevicius et al. 2022 have it; both as in training, and as
// what has no largest value.
TEST(formats_command, casts_are_named) {
  const std::vector<float> x = {1e9f, INFINITY, -INFINITY, NAN};
  const auto codes = [&](const std::string& format, const std::string& cast) {
    return run("encode --format " + format + " --cast " + cast, bytes_of(x)).out;
  };
  EXPECT_EQ(codes("e4m3", "fp8-paper"), "\x7E\x7F\xFF\x7F");
  EXPECT_EQ(codes("e5m2", "fp8-paper"), "\x7B\x7C\xFC\x7F");
  EXPECT_EQ(codes("hif8", "fp8-paper"), "\x6E\x6F\xEF\x80");
  EXPECT_EQ(codes("e5m2", "saturating"), "\x7B\x7B\xFB\x7F");
  EXPECT_EQ(codes("e4m3", "saturating"), run("encode --format e4m3", bytes_of(x)).out);
  EXPECT_EQ(codes("e5m2", "overflowing"), "\x7C\x7C\xFC\x7F");
  EXPECT_EQ(codes("e4m3", "overflowing"),
            run("encode --format e4m3 --no-saturate", bytes_of(x)).out);
  EXPECT_NE(run("encode --help").out.find("as in training"), std::string::npos);
}

TEST(formats_command, quantize_and_dequantize_round_trip) {
  const std::vector<float> x = samples(10 * 30);
  for (const char* granularity : {"tensor", "row", "1x16", "1x128", "128x128"}) {
    for (const bool expand : {false, true}) {
      if (expand && std::string(granularity) == "128x128") continue;
      const Outcome file = run(std::string("quantize --format e4m3 --shape 10,30 --granularity ") +
                                   granularity + (expand ? " --expand" : ""),
                               bytes_of(x));
      ASSERT_EQ(file.code, 0) << file.err;
      EXPECT_NE(file.out.find(expand ? "\"meta\"" : "\"scale\""), std::string::npos);
      const std::vector<float> back = floats_of(run("dequantize", file.out).out);
      ASSERT_EQ(back.size(), x.size());
      double noise = 0, signal = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        noise += std::pow(back[i] - x[i], 2);
        signal += std::pow(x[i], 2);
      }
      EXPECT_GT(10 * std::log10(signal / noise), 30.0) << granularity << " " << expand;
    }
  }
}

TEST(formats_command, mistakes_end_with_their_exit_code_and_one_line) {
  struct Case {
    const char* arguments;
    const char* input;
    int code;
  };
  const Case cases[] = {
      {"encode --format e3m4", "", 2},
      {"encode --format e4m3 --rounding hr", "", 2},
      {"encode --format e4m3 --rounding up", "", 2},
      {"encode --format e4m3", "123", 3},
      {"decode --format f32", "", 2},
      {"table e9m9", "", 2},
      {"quantize --format e4m3 --shape 2,2", "1234", 3},
      {"quantize --format e4m3 --shape 2x2", "", 2},
      {"quantize --format bf16 --shape 1,1", "1234", 2},
      {"quantize --format e4m3 --shape 1,1 --granularity 2x3", "1234", 2},
      {"quantize --format e4m3 --shape 1,1 --granularity 8x8 --expand", "1234", 2},
      {"dequantize", "no safetensors file", 3},
      {"dequantize /nonexistent/file", "", 3}};
  for (const Case& c : cases) {
    const Outcome outcome = run(c.arguments, c.input);
    EXPECT_EQ(outcome.code, c.code) << c.arguments << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "") << c.arguments;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

}  // namespace
}  // namespace octet::formats_command
