// Python's two ways to fill a text: "%s" % values and "{}".format(values).
#pragma once

#include "text/jinja/runtime.h"

namespace octet::jinja {

// format % values: values is a tuple, a dict for %(key)s, or one value.
Value format_percent(Runtime& runtime, const Value& format, const Value& values);

// format.format(...), with the sandbox's rules for attributes.
Value format_braces(Runtime& runtime, const Value& format, const Arguments& arguments);

// How one value is to be written; both ways end here.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =; 0: the type's own
  char sign = 0;   // + - or space; 0: as -
  bool is_alternate = false;
  char grouping = 0;  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

std::string format_integer(Runtime& runtime, int64_t value, const FormatSpec& spec);
std::string format_real(Runtime& runtime, double value, const FormatSpec& spec);
std::string pad_formatted(Runtime& runtime, std::string_view text, const FormatSpec& spec,
                          char default_align);

}  // namespace octet::jinja
