// Expressions of tokenizer.json files, which are written for Oniguruma, in the syntax of PCRE2.
// Source: Oniguruma's doc/RE (ONIG_SYNTAX_ONIGURUMA), and what the `tokenizers` package matches.
//   \w, \b, [[:alpha:]], ...   the properties of Unicode that the library means by them
//   ^ $                        at each line
//   (?m) .                     also a line's end; (?i), (?x) as they stand, up to the group's end
//   \h \H \v \N \O \uHHHH      a hexadecimal digit, no such digit, U+000B, ...
//   {,n}                       from none to n
//   [a[bc]], [a-z&&[^b]]       unions and intersections of classes
//   \p{Han}                    the script itself, not its extensions
// Anything else that the two read in different ways is refused by name: \G, \K in assertions, \X,
// \y, bytes (\xE9), control and meta escapes, calls, conditions, absent groups, callouts, and under
// (?i) what folds to several characters, as "ss" and U+00DF do.
#pragma once

#include <string>
#include <string_view>

namespace octet {

// For PCRE2 with UTF and UCP. Throws Error{invalid_argument} that says what is not supported.
std::string pcre2_expression(std::string_view oniguruma);

}  // namespace octet
