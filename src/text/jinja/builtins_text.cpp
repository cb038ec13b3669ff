// What is called on text, as a filter or as a method.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"

namespace octet::jinja {
namespace {

Value like(const Call& call, std::string_view bytes) {
  return call.runtime.text(std::string(bytes), call.self.is_markup());
}

// Characters of text in the case that case_of(the one before it, 0 at the beginning) says.
template <typename CaseOf>
Value change(const Call& call, CaseOf case_of) {
  Runtime& runtime = call.runtime;
  const std::string& text = runtime.read(call.self);
  runtime.charge_characters(text.size());
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

Value upper(Call& call) {
  return change(call, [](int32_t) { return Case::upper; });
}
Value lower(Call& call) {
  return change(call, [](int32_t) { return Case::lower; });
}
Value capitalize(Call& call) {
  return change(call, [](int32_t before) { return before == 0 ? Case::title : Case::lower; });
}
Value title_method(Call& call) {
  return change(call, [](int32_t before) { return is_cased(before) ? Case::lower : Case::title; });
}
// Unlike the method, it begins words at white space and some signs alone.
Value title_filter(Call& call) {
  const Value text = as_text(call.runtime, call.self);
  return change({call.runtime, call.row, text, call.given}, [](int32_t before) {
    const bool begins = before == 0 || is_space(before) ||
                        (before < 0x80 && std::string_view("-({[<").find(
                                              static_cast<char>(before)) != std::string_view::npos);
    return begins ? Case::upper : Case::lower;
  });
}

template <Side side>
Value strip_text(Call& call) {
  const std::string& text = call.runtime.read(call.self);
  if (!call.is_given(0)) {
    const std::string_view rest = strip(text, side);
    call.runtime.charge_characters(text.size() - rest.size());
    return like(call, rest);
  }
  const std::string_view set = call.text(0), rest = strip(text, side, set);
  call.runtime.charge((text.size() - rest.size()) * (1 + set.size() / 16));
  return like(call, rest);
}

Value split(Call& call) {
  Runtime& runtime = call.runtime;
  const std::string& text = runtime.read(call.self);
  const int64_t max_split = call.integer(1, -1);
  std::vector<Value> pieces;
  size_t begin = 0;
  const auto is_last = [&] {
    return max_split >= 0 && static_cast<int64_t>(pieces.size()) >= max_split;
  };
  const auto add = [&](size_t from, size_t to) {
    pieces.push_back(like(call, std::string_view(text).substr(from, to - from)));
  };
  if (call.is_given(0)) {
    const std::string& separator = call.text(0);
    if (separator.empty()) runtime.fail("split(): the separator is empty");
    for (size_t at = 0; !is_last(); begin = at + separator.size()) {
      at = find_text(runtime, text, separator, begin);
      if (at == std::string::npos) break;
      add(begin, at);
    }
    add(begin, text.size());
    return runtime.list(std::move(pieces));
  }
  runtime.charge_characters(text.size());
  const auto skip = [&](size_t at, bool spaces) {
    while (at < text.size() && is_space(decode_utf8(text, at).code) == spaces) {
      at += decode_utf8(text, at).length;
    }
    return at;
  };
  while ((begin = skip(begin, true)) < text.size()) {
    const bool is_rest = is_last();
    const size_t end = is_rest ? text.size() : skip(begin, false);
    add(begin, end);
    begin = end;
  }
  return runtime.list(std::move(pieces));
}

// The bytes between the characters that parameters 1 and 2 name, as Python clamps them; nothing
// where the first lies beyond the end.
std::optional<std::pair<size_t, size_t>> window(const Call& call, const std::string& text) {
  if (!call.is_given(1) && !call.is_given(2)) return std::pair(size_t{0}, text.size());
  const int64_t size = *length_of(call.runtime, call.self);
  const auto clamp = [size](int64_t at) { return at < 0 ? std::max(at + size, int64_t{0}) : at; };
  const int64_t start = call.is_given(1) ? clamp(call.integer(1, 0)) : 0;
  const int64_t stop = call.is_given(2) ? std::min(clamp(call.integer(2, 0)), size) : size;
  if (start > stop) return std::nullopt;
  return std::pair(nth_character(text, start), nth_character(text, stop));
}

template <bool at_start>
Value has_affix(Call& call) {
  const std::string& text = call.runtime.read(call.self);
  const auto within = window(call, text);
  const auto fits = [&](const Value& affix) {
    if (!affix.is_text()) {
      call.runtime.fail("{}() expected text, got {}", call.row.name, type_name(affix));
    }
    if (!within) return false;
    const auto part = std::string_view(text).substr(within->first, within->second - within->first);
    const std::string& wanted = call.runtime.read(affix);
    return at_start ? part.starts_with(wanted) : part.ends_with(wanted);
  };
  const auto* several = call.get(0, {}).as<Sequence>();
  if (several == nullptr || several->type == Type::list) return fits(*call.values[0]);
  return std::any_of(several->items.begin(), several->items.end(), fits);
}

Value find(Call& call) {
  const std::string &text = call.runtime.read(call.self), &part = call.text(0);
  const auto within = window(call, text);
  if (!within) return int64_t{-1};
  const std::string_view before = std::string_view(text).substr(0, within->second);
  const size_t at = find_text(call.runtime, before, part, within->first);
  return at == std::string::npos ? int64_t{-1} : count_characters(before.substr(0, at));
}

Value count(Call& call) {
  const std::string &text = call.runtime.read(call.self), &part = call.text(0);
  const auto within = window(call, text);
  if (!within) return int64_t{0};
  const std::string_view before = std::string_view(text).substr(0, within->second);
  if (part.empty()) return count_characters(before.substr(within->first)) + 1;
  int64_t n = 0;
  size_t at = within->first;
  while ((at = find_text(call.runtime, before, part, at)) != std::string::npos) {
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
    return is_markup ? escaped(runtime, *call.values[i]) : as_text(runtime, *call.values[i]);
  };
  const Value self = as_text(runtime, call.self), from = operand(0), to = operand(1);
  const std::string &text = runtime.read(self), &old = runtime.read(from);
  const std::string_view with = runtime.read(to);
  int64_t left = call.is_given(2) ? call.integer(2, -1) : -1;
  Builder out(runtime);
  size_t at = 0;
  for (; left != 0; --left) {
    const size_t found = find_text(runtime, text, old, at);
    if (found == std::string::npos) break;
    out.append(std::string_view(text).substr(at, found - at));
    out.append(with);
    at = found + old.size();
    if (!old.empty()) continue;
    runtime.charge(1);
    if (at == text.size()) break;  // empty text matches once at the end as well
    const size_t length = decode_utf8(text, at).length;
    out.append(std::string_view(text).substr(at, length));
    at += length;
  }
  out.append(std::string_view(text).substr(at));
  return out.take(is_markup);
}

Value is_digits(Call& call) {
  const std::string& text = call.runtime.read(call.self);
  bool holds = !text.empty();
  call.runtime.charge_characters(text.size());
  for_each_character(text,
                     [&](std::string_view, int32_t code) { holds = holds && is_digit(code); });
  return holds;
}

Value join_method(Call& call) {
  Runtime& runtime = call.runtime;
  const bool is_markup = call.self.is_markup();
  Builder out(runtime);
  bool is_first = true;
  for (const Value& item : Items(runtime, *call.values[0])) {
    if (!item.is_text() && !is_markup) {
      runtime.fail("join(): expected text, got {}", type_name(item));
    }
    if (!std::exchange(is_first, false)) out.append(runtime.read(call.self));
    append_text(out, is_markup ? escaped(runtime, item) : item);
    runtime.charge(1);
  }
  return out.take(is_markup);
}

Value string(Call& call) {
  return as_text(call.runtime, call.self);
}

Value safe(Call& call) {
  if (call.self.is_markup()) return call.self;
  return call.runtime.text(call.runtime.read(as_text(call.runtime, call.self)), true);
}

// Spaces, or the text itself, that parameter 0 gives.
std::string indentation(const Call& call, size_t i, int64_t fallback) {
  if (call.has(i) && call.values[i]->is_text()) return call.text(i);
  const auto n = static_cast<uint64_t>(std::max<int64_t>(call.integer(i, fallback), 0));
  call.runtime.reserve_text(n);
  return std::string(n, ' ');
}

Value indent(Call& call) {
  Runtime& runtime = call.runtime;
  if (call.self.is_undefined()) runtime.fail_undefined(call.self);
  if (!call.self.is_text()) runtime.fail("indent expected text, got {}", type_name(call.self));
  const std::string by = indentation(call, 0, 4), text = runtime.read(call.self) + "\n";
  const bool blank = call.truth(2);
  Builder out(runtime);
  if (call.truth(1)) out.append(by);
  runtime.charge_characters(text.size());
  size_t begin = 0, at = 0;  // of the line, of the character
  char32_t before = 0;
  for_each_character(text, [&](std::string_view character, int32_t code) {
    const bool is_second_half = code == '\n' && before == '\r' && begin == at;
    before = static_cast<char32_t>(code);
    if (is_line_end(code) && !is_second_half) {
      const std::string_view line = std::string_view(text).substr(begin, at - begin);
      if (begin > 0) out.append("\n");
      if (begin > 0 && (blank || !line.empty())) out.append(by);
      out.append(line);
    }
    at += character.size();
    if (is_line_end(code)) begin = at;
  });
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
    {"upper", kFilter | kOfText, "", 0, upper},
    {"lower", kFilter | kOfText, "", 0, lower},
    {"capitalize", kFilter | kOfText, "", 0, capitalize},
    {"title", kFilter, "", 0, title_filter},
    {"title", kOfText, "", 0, title_method},
    {"trim", kFilter, "chars", 0,
     [](Call& call) {
       const Value text = as_text(call.runtime, call.self);
       Call on_text(call.runtime, call.row, text, call.given);
       return strip_text<Side::both>(on_text);
     }},
    {"strip", kOfText, "/chars", 0, strip_text<Side::both>},
    {"lstrip", kOfText, "/chars", 0, strip_text<Side::left>},
    {"rstrip", kOfText, "/chars", 0, strip_text<Side::right>},
    {"split", kOfText, "sep,maxsplit", 0, split},
    {"startswith", kOfText, "/prefix,start,end", 1, has_affix<true>},
    {"endswith", kOfText, "/suffix,start,end", 1, has_affix<false>},
    {"find", kOfText, "/sub,start,end", 1, find},
    {"count", kOfText, "/sub,start,end", 1, count},
    {"replace", kFilter, "old,new,count", 2, replace},
    {"replace", kOfText, "/old,new,count", 2, replace},
    {"isdigit", kOfText, "", 0, is_digits},
    {"join", kOfText, "/iterable", 1, join_method},
    {"string", kFilter, "", 0, string},
    {"safe", kFilter, "", 0, safe},
    {"indent", kFilter, "width,first,blank", 0, indent},
    {"tojson", kFilter, "ensure_ascii,indent,separators,sort_keys", 0, tojson},
};

}  // namespace

std::span<const Builtin> text_rows() {
  return kTextRows;
}

}  // namespace octet::jinja
