// What methods and filters of text share.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace octet::jinja {

// Throws where text that is being made has become too long.
inline void check_size(Runtime& runtime, const std::string& text) {
  if (text.size() > runtime.limits().max_text_bytes) runtime.reserve_text(text.size());
}

// Before `part` is looked for in `text`: as many steps as the slowest search takes.
inline void charge_search(Runtime& runtime, std::string_view text, std::string_view part) {
  runtime.charge(text.size() / 16 + text.size() / 16 * (part.size() / 32));
}

// Python's str.replace; count < 0: all.
std::string replace_text(Runtime& runtime, std::string_view text, std::string_view old,
                         std::string_view with, int64_t count);

enum class Align { left, right, center };
// Fills with `fill` to `width` characters; centred as str.center does it.
std::string pad(Runtime& runtime, std::string_view text, int64_t width, Align align,
                std::string_view fill = " ");

}  // namespace octet::jinja
