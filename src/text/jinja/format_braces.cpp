// "{}".format(values), as Python's str has it.
#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"

namespace octet::jinja {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class BraceFormat {
 public:
  BraceFormat(Runtime& runtime, const Value& format, const Arguments& arguments)
      : runtime_(runtime), is_markup_(format.is_markup()), arguments_(arguments) {}

  // `level` counts the formats within format specifications: Python allows one.
  std::string run(std::string_view text, int level) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at];
      const bool is_doubled = at + 1 < text.size() && text[at + 1] == c;
      if ((c == '{' || c == '}') && is_doubled && level == 0) {
        out += c;
        at += 2;
      } else if (c == '{') {
        const size_t end = field_end(text, at);
        out += field(text.substr(at + 1, end - at - 1), level);
        at = end + 1;
      } else if (c == '}') {
        runtime_.fail("single '}}' in a format");
      } else {
        out += c;
        ++at;
      }
      check_size(runtime_, out);
    }
    return out;
  }

 private:
  size_t field_end(std::string_view text, size_t at) const {
    int depth = 0;
    for (size_t i = at; i < text.size(); ++i) {
      depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      if (depth == 0) return i;
    }
    runtime_.fail("expected '}}' before the end of a format");
  }

  std::string field(std::string_view text, int level) {
    if (level > 1) runtime_.fail("a format is nested too deeply");
    size_t end = 0;
    for (int depth = 0; end < text.size(); ++end) {
      depth += text[end] == '[' ? 1 : text[end] == ']' ? -1 : 0;
      if (depth == 0 && (text[end] == ':' || text[end] == '!')) break;
    }
    Value value = lookup(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with('!')) {
      if (text.size() < 2) runtime_.fail("expected a conversion after '!' in a format");
      value = converted(value, text[1]);
      text.remove_prefix(2);
      if (!text.empty() && text[0] != ':') runtime_.fail("expected ':' after a conversion");
    }
    if (text.starts_with(':')) text.remove_prefix(1);
    const std::string written = write(value, run(text, level + 1));
    return is_markup_ && !value.is_markup() ? escape_html(written) : written;
  }

  Value converted(const Value& value, char conversion) {
    if (conversion == 's') return runtime_.text(str(runtime_, value));
    if (conversion == 'r') return runtime_.text(repr(runtime_, value));
    runtime_.fail("unknown conversion in a format");
  }

  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    name.remove_prefix(end);
    while (!name.empty()) {
      if (name[0] == '.') {
        const size_t stop = std::min(name.find_first_of(".[", 1), name.size());
        value = attribute_of(runtime_, value, std::string(name.substr(1, stop - 1)));
        name.remove_prefix(stop);
      } else if (name[0] == '[') {
        const size_t stop = name.find(']');
        if (stop == std::string_view::npos) runtime_.fail("missing ']' in a format");
        const std::string_view key = name.substr(1, stop - 1);
        const bool is_index = is_digits(key) && key.size() < 18;
        value = item_of(runtime_, value,
                        is_index ? Value(int64_t{std::stoll(std::string(key))})
                                 : runtime_.text(std::string(key)));
        name.remove_prefix(stop + 1);
      } else {
        runtime_.fail("expected '.' or '[' after ']' in a format");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    if (name.empty() || (is_digits(name) && name.size() < 9)) {
      const bool is_automatic = name.empty();
      if (is_automatic_.value_or(is_automatic) != is_automatic) {
        runtime_.fail("format(): fields are numbered either all or not at all");
      }
      is_automatic_ = is_automatic;
      const size_t i = name.empty() ? next_++ : static_cast<size_t>(std::stoul(std::string(name)));
      if (i >= arguments_.positional.size()) {
        runtime_.fail("format(): no argument for field {}", i);
      }
      return arguments_.positional[i];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    runtime_.fail("format(): no argument '{}'", name);
  }

  FormatSpec parse(std::string_view text) const {
    FormatSpec spec;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    const auto all = jinja::characters(text);
    if (all.size() > 1 && all[1].size() == 1 && is_align(all[1][0])) {
      spec.fill = all[0];
      spec.align = all[1][0];
      text.remove_prefix(all[0].size() + 1);
    } else if (!text.empty() && is_align(text[0])) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
    const auto take = [&](std::string_view set) {
      if (text.empty() || set.find(text[0]) == std::string_view::npos) return char{0};
      const char c = text[0];
      text.remove_prefix(1);
      return c;
    };
    if (const char sign = take("+- ")) spec.sign = sign;
    spec.is_alternate = take("#") != 0;
    if (take("0") != 0 && spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    const auto number = [&] {
      int64_t n = 0;
      while (const char digit = take("0123456789"))
        n = std::min<int64_t>(n * 10 + digit - '0', INT32_MAX);
      return n;
    };
    spec.width = number();
    spec.grouping = take(",_");
    if (take(".") != 0) spec.precision = number();
    spec.type = take("bcdeEfFgGnosxX%");
    if (!text.empty()) runtime_.fail("invalid format specifier");
    return spec;
  }

  std::string write(const Value& value, const std::string& specification) {
    if (specification.empty()) return str(runtime_, value);
    FormatSpec spec = parse(specification);
    if (value.is_text()) return write_text(value.text(), spec);
    if (!value.is_number()) {
      runtime_.fail("a {} takes no format specification", type_name(value));
    }
    const std::string_view of_reals = "eEfFgG%";
    const bool is_real_type = spec.type != 0 && of_reals.find(spec.type) != std::string_view::npos;
    if (value.is(Kind::real) || is_real_type) return format_real(runtime_, value.number(), spec);
    if (spec.precision >= 0) runtime_.fail("precision not allowed in integer format specifier");
    if (spec.type == 's' || spec.type == 'c') runtime_.fail("unsupported format of an integer");
    return format_integer(runtime_, value.integral(), spec);
  }

  std::string write_text(std::string text, FormatSpec spec) {
    if (spec.type != 0 && spec.type != 's') runtime_.fail("unknown format code for text");
    if (spec.sign != 0 || spec.is_alternate || spec.grouping != 0) {
      runtime_.fail("a format of text takes no sign, '#' or ','");
    }
    if (spec.align == '=') {
      if (spec.fill != "0") runtime_.fail("'=' alignment not allowed in a format of text");
      spec.align = '<';
    }
    const auto offsets = character_offsets(text);
    if (spec.precision >= 0 && static_cast<size_t>(spec.precision) + 1 < offsets.size()) {
      text.resize(offsets[static_cast<size_t>(spec.precision)]);
    }
    return pad_formatted(runtime_, text, spec, '<');
  }

  Runtime& runtime_;
  const bool is_markup_;
  const Arguments& arguments_;
  size_t next_ = 0;
  std::optional<bool> is_automatic_;
};

}  // namespace

Value format_braces(Runtime& runtime, const Value& format, const Arguments& arguments) {
  BraceFormat fill(runtime, format, arguments);
  return runtime.text(fill.run(format.text(), 0), format.is_markup());
}

}  // namespace octet::jinja
