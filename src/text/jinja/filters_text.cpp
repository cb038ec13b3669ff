#include <algorithm>
#include <cstdlib>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"
#include "text/unicode.h"

namespace octet::jinja {
namespace {

// Filters that are methods of the text of their value.
template <const char* name>
Value as_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  return find_method(runtime.text(""), name)(runtime, soft_text(runtime, self), arguments);
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize";

Value trim(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "trim", {"chars"});
  const Value text = soft_text(runtime, self);
  charge_search(runtime, text.text(), bound.is_given(0) ? bound.text(0) : "");
  const std::string_view stripped = bound.is_given(0)
                                        ? strip(text.text(), Side::both, bound.text(0))
                                        : strip(text.text(), Side::both);
  return runtime.text(std::string(stripped), text.is_markup());
}

Value title(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "title", {});
  const Value text = soft_text(runtime, self);
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = decode_utf8(word, 0).length;
    out += to_upper(std::string_view(word).substr(0, first));
    out += to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (const std::string_view c : characters(text.text())) {
    const bool is_break = is_space(decode_utf8(c, 0).code) ||
                          std::string_view("-({[<").find(c) != std::string_view::npos;
    if (!is_break) {
      word += c;
      continue;
    }
    flush();
    out += c;
  }
  flush();
  return runtime.text(std::move(out), text.is_markup());
}

Value center(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "center", {"width"});
  const Value text = soft_text(runtime, self);
  return runtime.text(pad(runtime, text.text(), bound.integer(0, 80), Align::center),
                      text.is_markup());
}

Value replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "replace", {"old", "new", "count"}, 2);
  return runtime.text(replace_text(runtime, str(runtime, self), str(runtime, bound[0]),
                                   str(runtime, bound[1]), bound.optional_integer(2).value_or(-1)));
}

Value string(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "string", {});
  return soft_text(runtime, self);
}

Value safe(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "safe", {});
  return self.is_markup() ? self : runtime.text(str(runtime, self), true);
}

Value escape(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "escape", {});
  return escaped(runtime, self);
}

Value force_escape(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "forceescape", {});
  return runtime.text(escape_html(str(runtime, self)), true);
}

std::string indent_lines(const std::vector<std::string_view>& lines, std::string_view indent,
                         bool blank) {
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return out;
}

Value indent(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "indent", {"width", "first", "blank"});
  if (self.is_undefined()) runtime.fail_undefined(self);
  if (!self.is_text()) runtime.fail("indent expected text, got {}", type_name(self));
  std::string by;
  if (bound.has(0) && bound[0].is_text()) {
    by = bound[0].text();
  } else {
    by = pad(runtime, "", bound.integer(0, 4), Align::left);
  }
  const std::string text = self.text() + "\n";
  const auto lines = split_lines(text);
  runtime.reserve_text(text.size() + lines.size() * by.size());
  std::string out = indent_lines(lines, by, bound.truth(2, false));
  if (bound.truth(1, false)) out.insert(0, by);
  return runtime.text(std::move(out), self.is_markup());
}

Value truncate(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const std::string end = bound.has(2) ? bound.text(2) : "...";
  const int64_t limit = bound.integer(0, 255), leeway = bound.optional_integer(3).value_or(5);
  const int64_t n_end = count_characters(end);
  if (limit < n_end || leeway < 0) runtime.fail("truncate: expected length >= that of its end");
  if (length(runtime, self) <= limit + leeway) return self;
  if (!self.is_text()) runtime.fail("truncate expected text, got {}", type_name(self));
  std::string cut = self.text();
  cut.resize(character_offsets(cut)[static_cast<size_t>(limit - n_end)]);
  if (!bound.truth(1, false)) cut.resize(std::min(cut.rfind(' '), cut.size()));
  return runtime.text(cut + (self.is_markup() ? escape_html(end) : end), self.is_markup());
}

Value word_count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "wordcount", {});
  const std::string text = str(runtime, self);
  int64_t n = 0;
  bool is_within = false;
  for (const std::string_view c : characters(text)) {
    const bool is_word = c == "_" || is_class(c, TextClass::alnum);
    n += is_word && !is_within;
    is_within = is_word;
  }
  return n;
}

Value format(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    runtime.fail("format: expected positional or keyword arguments, got both");
  }
  const Value text = soft_text(runtime, self);
  if (arguments.named.empty()) {
    return format_percent(runtime, text, runtime.tuple(arguments.positional));
  }
  auto* values = runtime.dict();
  for (const auto& [key, value] : arguments.named) values->set(runtime, runtime.text(key), value);
  return format_percent(runtime, text, values);
}

Value url_encode(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "urlencode", {});
  const auto quote = [](const std::string& text, bool is_query) {
    std::string out;
    for (const char c : text) {
      const bool is_plain =
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
          std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !is_query);
      if (is_plain) {
        out += c;
      } else if (c == ' ' && is_query) {
        out += '+';
      } else {
        out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      }
    }
    return out;
  };
  if (self.is_text() || !is_iterable(self)) return runtime.text(quote(str(runtime, self), false));
  const auto* dict = self.as<Dict>();
  if (dict == nullptr) runtime.fail("urlencode of pairs is outside the supported subset");
  std::string out;
  for (const auto& [key, value] : dict->entries) {
    if (!out.empty()) out += '&';
    out += quote(str(runtime, key), true) + "=" + quote(str(runtime, value), true);
  }
  return runtime.text(std::move(out));
}

Value tojson(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "tojson",
                    {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  if (bound.is_given(1)) {
    style.indent =
        bound[1].is_text() ? bound[1].text() : pad(runtime, "", bound.integer(1, 0), Align::left);
  }
  if (bound.is_given(2)) {
    const auto* pair = bound[2].as<Sequence>();
    if (pair == nullptr || pair->items.size() != 2 || !pair->items[0].is_text() ||
        !pair->items[1].is_text()) {
      runtime.fail("tojson: expected two texts as separators");
    }
    style.item_separator = pair->items[0].text();
    style.key_separator = pair->items[1].text();
  }
  return runtime.text(to_json(runtime, self, style));
}

constexpr MethodRow kTextFilters[] = {
    {"upper", as_method<kUpper>},
    {"lower", as_method<kLower>},
    {"capitalize", as_method<kCapitalize>},
    {"trim", trim},
    {"title", title},
    {"center", center},
    {"replace", replace},
    {"string", string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", force_escape},
    {"indent", indent},
    {"truncate", truncate},
    {"wordcount", word_count},
    {"format", format},
    {"urlencode", url_encode},
    {"tojson", tojson},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  return find_row(kTextFilters, name);
}

}  // namespace octet::jinja
