// JSON that Python's json reads and ours cannot hold.
#include "base/json_reader.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/ordered_json.h"
#include "unit/base/error_of.h"

namespace octet::base_unread_json_test {
namespace {

using test::error_of;

TEST(UnreadJson, does_not_stand_in_the_way_of_what_is_read) {
  const char* text =
      R"({"model_max_length": 1000000000000000019884624838656,
      "id": 18446744073709551615,
      "a": [NaN, -Infinity, Infinity, 1e400, -1e999], "b": "x \ud83d y", "c": "\udc00\ud800",
      "k\ud800": {"d": [1]},
      "kept": [9223372036854775807, 1e308, "\ud83d\ude00", "NaN", "\\ud83d"]})";
  const OrderedJson json = parse_ordered_json(text, "t");
  EXPECT_EQ(json["kept"].dump(), R"([9223372036854775807,1e+308,"😀","NaN","\\ud83d"])");
  const Json strict = parse_json(text, "t");
  EXPECT_EQ(strict["kept"].dump(), R"([9223372036854775807,1e+308,"😀","NaN","\\ud83d"])");
  EXPECT_DOUBLE_EQ(strict["model_max_length"].get<double>(), 1e30);
  EXPECT_EQ(strict["id"].get<uint64_t>(), UINT64_MAX);
  expect_read(json["kept"], "kept");
}

TEST(UnreadJson, is_named_with_its_place_where_it_is_used) {
  const auto why = [](const char* text) {
    return error_of([&] { expect_read(parse_ordered_json(text, "t"), "context"); });
  };
  const std::string is = ": expected a value that can be kept, got ";
  EXPECT_EQ(why(R"({"messages": [{"content": "a"}, {"content": "x \ud83d"}]})"),
            "[json] context.messages[1].content" + is + R"(a text with \ud83d, half of a pair)");
  EXPECT_EQ(why("[[1, NaN]]"), "[json] context[0][1]" + is + "NaN");
  EXPECT_EQ(why("-Infinity"), "[json] context" + is + "-Infinity");
  EXPECT_EQ(why(R"({"n": 18446744073709551615})"),
            "[json] context.n" + is + "the integer 18446744073709551615");
  EXPECT_EQ(why(R"({"n": 1000000000000000019884624838656})"),
            "[json] context.n" + is + "the integer 100000000000000001988462... of 31 characters");
  EXPECT_EQ(why(R"({"n": 1, "m": 2, "n": {"a": [1]}})"),
            "[json] context.n" + is + "a key given twice");
  EXPECT_EQ(why(R"({"n": 1, "n": NaN})"), "[json] context.n" + is + "a key given twice");
  EXPECT_EQ(why(R"({"n": 1e400})"), "[json] context.n" + is + "the number 1e400");
  EXPECT_EQ(why(R"({"a": {"k\udc00": {"b": 1}}})"),
            R"([json] context.a.a text with \udc00, half of a pair)" + is +
                R"(a text with \udc00, half of a pair)");
  EXPECT_EQ(error_of([] { expect_read(parse_ordered_json(R"({"a": [NaN]})", "t"), ""); }),
            "[json] a[0]" + is + "NaN");
  EXPECT_EQ(error_of([] {
              const Json json = parse_json(R"({"eps": NaN})", "t");
              JsonObject(json, "t").number("eps");
            }),
            "[json] t: 'eps' must be a number, got NaN");
}

TEST(UnreadJson, other_mistakes_stay_mistakes) {
  for (const char* text : {"NaNa", "{\"a\": nan}", "[NaN", "[1e400,]", "\"\\ud83d", "{NaN: 1}",
                           "Infinityx", "[-]", "[--Infinity]", "\"\\u12\"", "\"\xff\""}) {
    EXPECT_NE(error_of([&] {
                parse_ordered_json(text, "t");
              }).find("[json] t: expected JSON, got a mistake"),
              std::string::npos)
        << text;
  }
  // Text that spells the mark by escapes is text.
  const OrderedJson json = parse_ordered_json(R"(["\u0075nread-0-7", NaN])", "t");
  EXPECT_EQ(json[0], "unread-0-7");
}

}  // namespace
}  // namespace octet::base_unread_json_test
