// Text by characters, as Python's str sees it: counting, cutting, classes, case. UTF-8 throughout,
// which must be valid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace octet::jinja {

int64_t count_characters(std::string_view text);
// Byte at which the nth character begins; the end where there are fewer.
size_t nth_character(std::string_view text, int64_t n);

bool is_space(int32_t code);     // what str.strip and \s take for white space
bool is_line_end(int32_t code);  // what str.splitlines cuts at
bool is_digit(int32_t code);     // str.isdigit
bool is_printable(int32_t code);
bool is_cased(int32_t code);

// Drops white space, or the characters of `set`, from the sides.
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, Side side, std::string_view set);

// The simple mappings of the Unicode Standard. Kept apart, since Python's differ there: characters
// whose case is several characters, or depends on its neighbours.
enum class Case { upper, lower, title };
bool has_simple_case(int32_t code, Case to);
int32_t change_case(int32_t code, Case to);

}  // namespace octet::jinja
