#include "base/printable.h"

#include <gtest/gtest.h>

namespace octet::base_printable_test {
namespace {

TEST(Printable, text_stays_as_it_is) {
  for (const char* text : {"", "layers.0.weight", "a\\nb", "größer", "量", "\U0001F40C", "é"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, what_a_terminal_obeys_is_escaped) {
  EXPECT_EQ(printable("\x1b]0;title\a"), "\\u001b]0;title\\u0007");
  EXPECT_EQ(printable("a\nb\rc\td\x7f"), "a\\nb\\rc\\td\\u007f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(printable("\u009b31m"), "\\u009b31m");  // C1's short form of ESC [
  EXPECT_EQ(printable("\u202etxt.exe\u2066"), "\\u202etxt.exe\\u2066");
  EXPECT_EQ(printable("a\u2028b"), "a\\u2028b");
}

TEST(Printable, bytes_that_are_no_utf8_are_escaped) {
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("\xc3"), "\\xc3");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80");                    // NUL, too long
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
}

TEST(Printable, pages_keep_their_lines) {
  EXPECT_EQ(printable("a\tb\nc\x1b", Lines::many), "a\tb\nc\\u001b");
  EXPECT_EQ(printable("{\"a\": \"\x7f\u0085\"}\n", Lines::many), "{\"a\": \"\\u007f\\u0085\"}\n");
}

}  // namespace
}  // namespace octet::base_printable_test
