#include "base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/input_limits.h"
#include "base/json_reader.h"
#include "unit/base/error_of.h"

namespace octet::base_json_test {
namespace {

using test::error_of;

TEST(ParseJson, makes_every_kind_of_value) {
  const Json json = parse_json(
      R"({"a": [1, -2, 2.5, "x", null, true, {"b": {}, "c": []}], "d": 18446744073709551615})",
      "t");
  EXPECT_EQ(json.dump(),
            R"({"a":[1,-2,2.5,"x",null,true,{"b":{},"c":[]}],"d":18446744073709551615})");
  EXPECT_EQ(parse_json("7", "t"), Json(7));
}

TEST(ParseJson, names_the_key_that_comes_twice_and_what_is_too_deep) {
  EXPECT_EQ(
      error_of([] { parse_json(R"({"a": 1, "b": {"a": 1, "c": [{"a": 2}], "a": 3}})", "t"); }),
      "[json] t: expected each key once, got 'a' again");
  EXPECT_EQ(error_of([] { parse_json(std::string(65, '['), "t"); }),
            "[json] t: expected at most 64 levels, got more");
  EXPECT_EQ(parse_json(std::string(64, '[') + std::string(64, ']'), "t").size(), 1u);
  EXPECT_EQ(error_of([] { parse_json("{\"a\": 1e}", "t"); }),
            "[json] t: expected JSON, got a mistake at byte 9");
}

TEST(ParseJson, takes_so_many_values_and_levels_at_most) {
  const auto read = [](const std::string& text, size_t depth, size_t n_values) {
    return error_of(
        [&] { JsonReader<Json>({.depth = depth, .values = n_values}, "t").read(text); });
  };
  const std::string text = "[0, [1, {\"a\": 2}]]";
  EXPECT_EQ(read(text, 3, 6), "no error");
  EXPECT_EQ(read(text, 3, 5), "[json] t: expected at most 5 values, got more");
  EXPECT_EQ(read(text, 2, 6), "[json] t: expected at most 2 levels, got more");
  EXPECT_EQ(input_limits().json.max_values, 10'000'000u);
}

// The header of a model of 100,000 tensors: as many objects in one.
TEST(ParseJson, takes_time_in_proportion_to_the_objects) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) {
    text += fmt::format(R"("layers.{0}.weight": {{"dtype": "F8_E4M3", "shape": [1, 8], )"
                        R"("data_offsets": [{1}, {2}]}},)",
                        i, 8 * i, 8 * i + 8);
  }
  text.back() = '}';
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json(text, "t").size(), 100'000u);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 20);  // less than 1 s where nothing else runs; minutes if quadratic
}

}  // namespace
}  // namespace octet::base_json_test
