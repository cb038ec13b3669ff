// Methods of text that cut, join and search.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"

namespace octet::jinja {
namespace {

Value like(Runtime& runtime, const Value& self, std::string_view bytes) {
  return runtime.text(std::string(bytes), self.is_markup());
}

template <Side side>
Value strip_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "strip");
  const Bound bound(runtime, arguments, "strip", {"chars"});
  runtime.charge(self.text().size() / 16);
  if (!bound.is_given(0)) return like(runtime, self, strip(self.text(), side));
  charge_search(runtime, self.text(), bound.text(0));
  return like(runtime, self, strip(self.text(), side, bound.text(0)));
}

// The pieces of a split; each is charged for.
class Pieces {
 public:
  Pieces(Runtime& runtime, const Value& self) : runtime_(runtime), self_(self) {}
  void add(std::string_view piece) { items_.push_back(like(runtime_, self_, piece)); }
  Value take(bool reverses) {
    if (reverses) std::reverse(items_.begin(), items_.end());
    return runtime_.list(std::move(items_));
  }

 private:
  Runtime& runtime_;
  const Value& self_;
  std::vector<Value> items_;
};

void split_at_space(std::string_view text, int64_t max_split, bool from_right, Pieces& pieces) {
  const Side side = from_right ? Side::right : Side::left;
  std::vector<std::string_view> all = characters(text);
  if (from_right) std::reverse(all.begin(), all.end());
  size_t i = 0;  // characters, from the side that the walk begins at
  while (true) {
    text = strip(text, side);
    while (i < all.size() && strip(all[i], Side::both).empty()) ++i;
    if (i == all.size()) return;
    if (max_split-- == 0) return pieces.add(text);
    size_t length = 0;
    while (i < all.size() && !strip(all[i], Side::both).empty()) length += all[i++].size();
    pieces.add(from_right ? text.substr(text.size() - length) : text.substr(0, length));
    text = from_right ? text.substr(0, text.size() - length) : text.substr(length);
  }
}

void split_at(std::string_view text, std::string_view separator, int64_t max_split, bool from_right,
              Pieces& pieces) {
  while (max_split-- != 0) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const size_t after = at + separator.size();
    pieces.add(from_right ? text.substr(after) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(after);
  }
  pieces.add(text);
}

template <bool from_right>
Value split_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "split", {"sep", "maxsplit"});
  const int64_t max_split = bound.integer(1, -1);
  Pieces pieces(runtime, self);
  if (!bound.is_given(0)) {
    split_at_space(self.text(), max_split < 0 ? -1 : max_split, from_right, pieces);
  } else {
    if (bound.text(0).empty()) runtime.fail("split(): the separator is empty");
    charge_search(runtime, self.text(), bound.text(0));
    split_at(self.text(), bound.text(0), max_split < 0 ? -1 : max_split, from_right, pieces);
  }
  return pieces.take(from_right);
}

Value splitlines(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "splitlines", {"keepends"});
  Pieces pieces(runtime, self);
  for (const auto line : split_lines(self.text(), bound.truth(0, false))) pieces.add(line);
  return pieces.take(false);
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "partition");
  const Bound bound(runtime, arguments, "partition", {"sep"}, 1);
  const std::string& separator = bound.text(0);
  if (separator.empty()) runtime.fail("partition(): the separator is empty");
  const std::string& text = self.text();
  charge_search(runtime, text, separator);
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  const Value empty = like(runtime, self, "");
  if (at == std::string::npos) {
    return from_right ? runtime.tuple({empty, empty, self}) : runtime.tuple({self, empty, empty});
  }
  return runtime.tuple({like(runtime, self, text.substr(0, at)), like(runtime, self, separator),
                        like(runtime, self, text.substr(at + separator.size()))});
}

// The bytes between character positions start and stop, as Python clamps them; false where start
// lies beyond the end.
bool window(const Bound& bound, const std::string& text, size_t& begin, size_t& end) {
  begin = 0;
  end = text.size();
  if (!bound.is_given(1) && !bound.is_given(2)) return true;
  const auto offsets = character_offsets(text);
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  const auto clamp = [size](int64_t at) { return at < 0 ? std::max(at + size, int64_t{0}) : at; };
  const int64_t start = clamp(bound.optional_integer(1).value_or(0));
  const int64_t stop = std::min(clamp(bound.optional_integer(2).value_or(size)), size);
  if (start > size || start > stop) return false;
  begin = offsets[static_cast<size_t>(start)];
  end = offsets[static_cast<size_t>(stop)];
  return true;
}

template <bool at_start>
Value starts_or_ends(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "startswith");
  const Bound bound(runtime, arguments, "startswith", {"prefix", "start", "end"}, 1);
  size_t begin = 0, end = 0;
  const bool is_within = window(bound, self.text(), begin, end);
  const std::string_view text = std::string_view(self.text()).substr(begin, end - begin);
  const auto fits = [&](const Value& affix) {
    if (affix.is_undefined()) runtime.fail_undefined(affix);
    if (!affix.is_text()) runtime.fail("startswith expected text, got {}", type_name(affix));
    return is_within && (at_start ? text.starts_with(affix.text()) : text.ends_with(affix.text()));
  };
  const auto* several = bound[0].as<Sequence>();
  if (several == nullptr) return fits(bound[0]);
  if (several->is_list()) runtime.fail("startswith expected text or a tuple of it, got list");
  return std::any_of(several->items.begin(), several->items.end(), fits);
}

enum class Search { find, rfind, index, rindex };

template <Search search>
Value search_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "find");
  const Bound bound(runtime, arguments, "find", {"sub", "start", "end"}, 1);
  const std::string& part = bound.text(0);
  constexpr bool is_reverse = search == Search::rfind || search == Search::rindex;
  size_t begin = 0, end = 0;
  charge_search(runtime, self.text(), part);
  if (window(bound, self.text(), begin, end)) {
    const std::string_view text = std::string_view(self.text()).substr(begin, end - begin);
    const size_t at = is_reverse ? text.rfind(part) : text.find(part);
    if (at != std::string_view::npos) return count_characters(self.text().substr(0, begin + at));
  }
  if (search == Search::index || search == Search::rindex) runtime.fail("substring not found");
  return int64_t{-1};
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "count");
  const Bound bound(runtime, arguments, "count", {"sub", "start", "end"}, 1);
  const std::string& part = bound.text(0);
  size_t begin = 0, end = 0;
  if (!window(bound, self.text(), begin, end)) return int64_t{0};
  const std::string text = self.text().substr(begin, end - begin);
  charge_search(runtime, text, part);
  if (part.empty()) return count_characters(text) + 1;
  int64_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++n;
  }
  return n;
}

Value replace_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "replace");
  const Bound bound(runtime, arguments, "replace", {"old", "new", "count"}, 2);
  const auto part = [&](size_t i) {
    bound.text(i);
    return self.is_markup() ? escaped(runtime, bound[i]) : bound[i];
  };
  return like(
      runtime, self,
      replace_text(runtime, self.text(), part(0).text(), part(1).text(), bound.integer(2, -1)));
}

Value join_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "join");
  const Bound bound(runtime, arguments, "join", {"iterable"}, 1);
  std::string joined;
  const Next next = iterate(runtime, bound[0]);
  bool is_first = true;
  for (Value item; next(item); is_first = false) {
    if (!item.is_text() && !self.is_markup()) {
      runtime.fail("join(): expected text, got {}", type_name(item));
    }
    if (!is_first) joined += self.text();
    joined += self.is_markup() ? escaped(runtime, item).text() : item.text();
    check_size(runtime, joined);
  }
  return like(runtime, self, joined);
}

template <bool at_start>
Value remove_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "removeprefix");
  const Bound bound(runtime, arguments, "removeprefix", {"prefix"}, 1);
  std::string_view text = self.text();
  const std::string& affix = bound.text(0);
  if (at_start && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!at_start && text.ends_with(affix)) text.remove_suffix(affix.size());
  return like(runtime, self, text);
}

Value format_method(Runtime& runtime, const Value& self, Arguments& arguments) {
  return format_braces(runtime, self, arguments);
}

Value format_map(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "format_map", {"mapping"}, 1);
  const auto* dict = bound[0].as<Dict>();
  if (dict == nullptr) runtime.fail("format_map(): expected a dict, got {}", type_name(bound[0]));
  Arguments named;
  for (const auto& [key, value] : dict->entries) {
    if (key.is_text()) named.named.emplace_back(key.text(), value);
  }
  return format_braces(runtime, self, named);
}

constexpr MethodRow kTextMethods[] = {
    {"strip", strip_method<Side::both>},
    {"lstrip", strip_method<Side::left>},
    {"rstrip", strip_method<Side::right>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"startswith", starts_or_ends<true>},
    {"endswith", starts_or_ends<false>},
    {"find", search_method<Search::find>},
    {"rfind", search_method<Search::rfind>},
    {"index", search_method<Search::index>},
    {"rindex", search_method<Search::rindex>},
    {"count", count},
    {"replace", replace_method},
    {"join", join_method},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"format", format_method},
    {"format_map", format_map},
};

}  // namespace

Method find_text_method(std::string_view name) {
  const auto* row = std::find_if(std::begin(kTextMethods), std::end(kTextMethods),
                                 [&](const auto& r) { return r.name == name; });
  return row == std::end(kTextMethods) ? nullptr : row->method;
}

}  // namespace octet::jinja
