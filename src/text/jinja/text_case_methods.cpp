// Methods of text: case, classes, padding.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/methods.h"
#include "text/jinja/text_helpers.h"

namespace octet::jinja {

std::string replace_text(Runtime& runtime, std::string_view text, std::string_view old,
                         std::string_view with, int64_t count) {
  charge_search(runtime, text, old);
  std::string out;
  size_t at = 0;
  while (count != 0) {
    const size_t found = old.empty() ? at : text.find(old, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += with;
    check_size(runtime, out);
    at = found + old.size();
    if (count > 0) --count;
    if (!old.empty()) continue;
    if (at >= text.size()) break;  // empty text matches once at the end as well
    size_t next = at + 1;
    while (next < text.size() && (text[next] & 0xC0) == 0x80) ++next;
    out += text.substr(at, next - at);
    at = next;
  }
  if (at < text.size()) out += text.substr(at);
  return out;
}

std::string pad(Runtime& runtime, std::string_view text, int64_t width, Align align,
                std::string_view fill) {
  const int64_t missing = width - count_characters(text);
  if (missing <= 0) return std::string(text);
  uint64_t n_bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(missing), fill.size(), &n_bytes)) {
    n_bytes = UINT64_MAX / 2;
  }
  runtime.reserve_text(n_bytes + text.size());
  int64_t left = align == Align::right ? missing : 0;
  if (align == Align::center) left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

namespace {

Value changed(Runtime& runtime, const Value& self, std::string bytes) {
  return runtime.text(std::move(bytes), self.is_markup());
}

template <std::string (*change)(std::string_view)>
Value case_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "upper", {});
  runtime.charge(self.text().size() / 4);
  return changed(runtime, self, change(self.text()));
}

template <TextClass text_class>
Value class_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "isalpha", {});
  runtime.charge(self.text().size() / 4);
  return is_class(self.text(), text_class);
}

template <Align align>
Value pad_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "ljust");
  const Bound bound(runtime, arguments, "ljust", {"width", "fillchar"}, 1);
  const std::string fill = bound.has(1) ? bound.text(1) : " ";
  if (count_characters(fill) != 1) runtime.fail("expected one character to fill with");
  return changed(runtime, self, pad(runtime, self.text(), bound.integer(0, 0), align, fill));
}

Value zfill(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "zfill");
  const Bound bound(runtime, arguments, "zfill", {"width"}, 1);
  std::string_view digits = self.text();
  std::string sign;
  if (digits.starts_with('+') || digits.starts_with('-')) {
    sign = digits.substr(0, 1);
    digits.remove_prefix(1);
  }
  const int64_t width = bound.integer(0, 0);
  const int64_t rest = width < 0 ? 0 : width - static_cast<int64_t>(sign.size());
  return changed(runtime, self, sign + pad(runtime, digits, rest, Align::right, "0"));
}

Value expandtabs(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "expandtabs", {"tabsize"});
  const int64_t size = bound.integer(0, 8);
  std::string out;
  int64_t column = 0;
  for (const std::string_view c : characters(self.text())) {
    if (c == "\t") {
      const int64_t n = size > 0 ? size - column % size : 0;
      runtime.reserve_text(out.size() + static_cast<uint64_t>(n));
      out.append(static_cast<size_t>(n), ' ');
      column += n;
      continue;
    }
    out += c;
    column = c == "\n" || c == "\r" ? 0 : column + 1;
  }
  return changed(runtime, self, std::move(out));
}

constexpr MethodRow kCaseMethods[] = {
    {"upper", case_method<to_upper>},
    {"lower", case_method<to_lower>},
    {"title", case_method<to_title>},
    {"capitalize", case_method<capitalize>},
    {"swapcase", case_method<swap_case>},
    {"isalpha", class_method<TextClass::alpha>},
    {"isalnum", class_method<TextClass::alnum>},
    {"isdecimal", class_method<TextClass::decimal>},
    {"isdigit", class_method<TextClass::digit>},
    {"isnumeric", class_method<TextClass::numeric>},
    {"isspace", class_method<TextClass::space>},
    {"islower", class_method<TextClass::lower>},
    {"isupper", class_method<TextClass::upper>},
    {"istitle", class_method<TextClass::title>},
    {"isascii", class_method<TextClass::ascii>},
    {"isprintable", class_method<TextClass::printable>},
    {"isidentifier", class_method<TextClass::identifier>},
    {"ljust", pad_method<Align::left>},
    {"rjust", pad_method<Align::right>},
    {"center", pad_method<Align::center>},
    {"zfill", zfill},
    {"expandtabs", expandtabs},
};

}  // namespace

Method find_text_case_method(std::string_view name) {
  const auto* row = std::find_if(std::begin(kCaseMethods), std::end(kCaseMethods),
                                 [&](const auto& r) { return r.name == name; });
  return row == std::end(kCaseMethods) ? nullptr : row->method;
}

}  // namespace octet::jinja
