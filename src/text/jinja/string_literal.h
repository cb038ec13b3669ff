// The escapes of a template's string literals, which are Python's.
#pragma once

#include <string>
#include <string_view>

namespace octet::jinja {

// `inside`: what stands between the quotes. Throws for an escape that Python refuses, and for
// surrogates and \N{name}, which are outside the supported subset.
std::string decode_string_literal(std::string_view inside, int line);

}  // namespace octet::jinja
