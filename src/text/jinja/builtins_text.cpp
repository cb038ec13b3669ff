// Builtins that are called on text, as a filter or as a method.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

Value like(const Call& call, std::string_view bytes) {
  return call.runtime.text(std::string(bytes), call.self.is_markup());
}

// Each character in the case that case_of(the one before it, 0 at the beginning) says.
template <Case (*case_of)(int32_t)>
Value change(Call& call) {
  Runtime& runtime = call.runtime;
  const std::string& text = runtime.read(call.self);
  runtime.charge(text.size());
  std::string out;
  int32_t before = 0;
  for_each_character(text, [&](std::string_view character, int32_t code) {
    const Case to = case_of(before);
    if (!has_simple_case(code, to)) {
      runtime.fail("the case of '{}' is outside the supported subset", character);
    }
    append_utf8(out, change_case(code, to));
    before = code;
  });
  return like(call, out);
}

Case upper(int32_t) {
  return Case::upper;
}
Case lower(int32_t) {
  return Case::lower;
}
Case capitalized(int32_t before) {
  return before == 0 ? Case::title : Case::lower;
}
Case title_of_method(int32_t before) {
  return is_cased(before) ? Case::lower : Case::title;
}
// Unlike the method, it begins words at white space and some signs alone.
Case title_of_filter(int32_t before) {
  static constexpr std::string_view kSigns = "-({[<";
  const bool begins =
      before == 0 || is_space(before) ||
      (before < 0x80 && kSigns.find(static_cast<char>(before)) != std::string_view::npos);
  return begins ? Case::upper : Case::lower;
}

template <Side side>
Value strip_text(Call& call) {
  const std::string& text = call.runtime.read(call.self);
  const std::string set = call.is_given(0) ? call.text(0) : "";
  const std::string_view rest = call.is_given(0) ? strip(text, side, set) : strip(text, side);
  call.runtime.charge((text.size() - rest.size()) * (1 + set.size() / 16));
  return like(call, rest);
}

// At the separator, or at white space.
Value split(Call& call) {
  Runtime& runtime = call.runtime;
  const bool at_spaces = !call.is_given(0);
  const std::string separator = at_spaces ? "" : call.text(0);
  if (!at_spaces && separator.empty()) runtime.fail("split(): the separator is empty");
  std::string_view rest = runtime.read(call.self);
  if (at_spaces) runtime.charge(rest.size());
  const auto find_end = [&] {
    if (!at_spaces) return find_text(runtime, rest, separator);
    size_t end = 0;
    while (end < rest.size() && !is_space(decode_utf8(rest, end).code)) {
      end += decode_utf8(rest, end).length;
    }
    return end < rest.size() ? end : std::string_view::npos;
  };
  std::vector<Value> pieces;
  for (int64_t n_left = call.integer(1, -1);; --n_left) {
    if (at_spaces) rest = strip(rest, Side::left);
    const size_t end = n_left == 0 ? std::string_view::npos : find_end();
    if (!at_spaces || !rest.empty()) pieces.push_back(like(call, rest.substr(0, end)));
    if (end == std::string_view::npos) return runtime.list(std::move(pieces));
    rest.remove_prefix(end + separator.size());
  }
}

Value starts_with(Call& call) {
  return call.runtime.read(call.self).starts_with(call.text(0));
}

Value ends_with(Call& call) {
  return call.runtime.read(call.self).ends_with(call.text(0));
}

Value find(Call& call) {
  const std::string &text = call.runtime.read(call.self), &part = call.text(0);
  const size_t at = find_text(call.runtime, text, part);
  if (at == std::string::npos) return int64_t{-1};
  return count_characters(std::string_view(text).substr(0, at));
}

Value count(Call& call) {
  const std::string &text = call.runtime.read(call.self), &part = call.text(0);
  if (part.empty()) return count_characters(text) + 1;
  int64_t n = 0;
  size_t at = 0;
  while ((at = find_text(call.runtime, text, part, at)) != std::string::npos) {
    at += part.size();
    ++n;
  }
  return n;
}

Value replace(Call& call) {
  Runtime& runtime = call.runtime;
  const bool is_filter = (call.row.uses & kFilter) != 0;  // takes any values, gives plain text
  const bool is_markup = call.self.is_markup() && !is_filter;
  const auto operand = [&](size_t i) {
    if (!is_filter) call.text(i);
    const Value text = as_text(runtime, *call.values[i]);
    return is_markup ? escaped(runtime, text) : text;
  };
  const Value from = operand(0), to = operand(1);
  const std::string &text = runtime.read(call.self), &old = runtime.read(from);
  const std::string_view with = runtime.read(to);
  if (old.empty()) runtime.fail("replacing empty text is outside the supported subset");
  int64_t left = call.is_given(2) ? call.integer(2, -1) : -1;
  Builder out(runtime);
  size_t at = 0;
  for (; left != 0; --left) {
    const size_t found = find_text(runtime, text, old, at);
    if (found == std::string::npos) break;
    out.append(std::string_view(text).substr(at, found - at));
    out.append(with);
    at = found + old.size();
  }
  out.append(std::string_view(text).substr(at));
  return out.take(is_markup);
}

Value is_digits(Call& call) {
  const std::string& text = call.runtime.read(call.self);
  bool holds = !text.empty();
  call.runtime.charge(text.size());
  for_each_character(text, [&](std::string_view, int32_t code) { holds &= is_digit(code); });
  return holds;
}

Value string(Call& call) {
  return call.self;
}

Value safe(Call& call) {
  return call.runtime.text(call.runtime.read(call.self), true);
}

// Spaces, or the text itself, that parameter `i` gives.
std::string indentation(const Call& call, size_t i, int64_t fallback) {
  if (call.has(i) && call.values[i]->is_text()) return call.text(i);
  const auto n = static_cast<uint64_t>(std::max<int64_t>(call.integer(i, fallback), 0));
  call.runtime.reserve_text(n);
  return std::string(n, ' ');
}

Value indent(Call& call) {
  Runtime& runtime = call.runtime;
  if (!call.self.is_text()) runtime.fail_type("indent", "text", call.self);
  const std::string by = indentation(call, 0, 4), &text = runtime.read(call.self);
  const bool blank = call.truth(2);
  Builder out(runtime);
  if (call.truth(1)) out.append(by);
  runtime.charge(text.size());
  bool has_ended = false;  // the line before
  int32_t before = 0;
  const auto begin_line = [&](bool is_blank) {
    if (!std::exchange(has_ended, false)) return;
    out.append("\n");
    if (!is_blank || blank) out.append(by);
  };
  for_each_character(text, [&](std::string_view character, int32_t code) {
    const bool is_second_half = std::exchange(before, code) == '\r' && code == '\n';
    if (is_second_half) return;
    begin_line(is_line_end(code));
    has_ended = is_line_end(code);
    if (!has_ended) out.append(character);
  });
  if (before != '\r') begin_line(true);  // Jinja adds a line feed first
  return out.take(call.self.is_markup());
}

Value tojson(Call& call) {
  Runtime& runtime = call.runtime;
  JsonStyle style;
  style.ensure_ascii = call.truth(0);
  style.sort_keys = call.truth(3);
  if (call.is_given(1)) {
    style.indent = indentation(call, 1, 0);
    style.item_separator = ",";
  }
  if (call.is_given(2)) {
    const std::vector<Value> pair = Items(runtime, *call.values[2]).copy();
    if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_text()) {
      runtime.fail("tojson: expected two texts as separators");
    }
    style.item_separator = runtime.read(pair[0]);
    style.key_separator = runtime.read(pair[1]);
  }
  Builder out(runtime);
  append_json(out, call.self, style);
  return out.take();
}

constexpr Builtin kTextRows[] = {
    {"upper", kFilter | kOfText, change<upper>},
    {"lower", kFilter | kOfText, change<lower>},
    {"capitalize", kFilter | kOfText, change<capitalized>},
    {"title", kFilter | kMadeText, change<title_of_filter>},
    {"title", kOfText, change<title_of_method>},
    {"trim", kFilter | kMadeText, strip_text<Side::both>, "chars"},
    {"strip", kOfText, strip_text<Side::both>, "/chars"},
    {"lstrip", kOfText, strip_text<Side::left>, "/chars"},
    {"rstrip", kOfText, strip_text<Side::right>, "/chars"},
    {"split", kOfText, split, "sep,maxsplit"},
    {"startswith", kOfText, starts_with, "/prefix", 1},
    {"endswith", kOfText, ends_with, "/suffix", 1},
    {"find", kOfText, find, "/sub", 1},
    {"count", kOfText, count, "/sub", 1},
    {"replace", kFilter | kMadeText, replace, "old,new,count", 2},
    {"replace", kOfText, replace, "/old,new,count", 2},
    {"isdigit", kOfText, is_digits},
    {"string", kFilter | kMadeText, string},
    {"safe", kFilter | kMadeText, safe},
    {"indent", kFilter, indent, "width,first,blank"},
    {"tojson", kFilter, tojson, "ensure_ascii,indent,separators,sort_keys"},
};

}  // namespace

std::span<const Builtin> text_rows() {
  return kTextRows;
}

}  // namespace octet::jinja
