// Text by characters, as Python's str sees it: counting, cutting, classes, case. UTF-8 throughout,
// which must be valid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octet::jinja {

bool is_ascii(std::string_view text);
int64_t count_characters(std::string_view text);
// Where each character begins, and the end.
std::vector<size_t> character_offsets(std::string_view text);
// The characters, each as text.
std::vector<std::string_view> characters(std::string_view text);

bool is_space(int32_t code);  // what str.strip and \s take for white space
bool is_printable(int32_t code);
bool is_identifier_start(int32_t code);
bool is_identifier_part(int32_t code);

enum class Side { left, right, both };
// Drops white space, or the characters of `set`, from the sides.
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, Side side, std::string_view set);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);

// Python's str.isX: false for empty text but for ascii and printable.
enum class TextClass {
  alpha,
  alnum,
  decimal,
  digit,
  numeric,
  space,
  lower,
  upper,
  title,
  ascii,
  printable,
  identifier
};
bool is_class(std::string_view text, TextClass text_class);

// Lines without their ends, or with them.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace octet::jinja
