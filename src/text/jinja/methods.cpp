#include "text/jinja/methods.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

Value dict_get(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "get");
  const Bound bound(runtime, arguments, "get", {"key", "default"}, 1);
  const Value* found = self.as<Dict>()->find(runtime, bound[0]);
  return found != nullptr ? *found : bound.get(1, None{});
}

template <ViewKind kind>
Value dict_view(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "items", {});
  auto* view = runtime.make<DictView>();
  view->kind = kind;
  view->dict = self.as<Dict>();
  return view;
}

Value dict_copy(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "copy", {});
  auto* copy = runtime.dict();
  for (const auto& [key, value] : self.as<Dict>()->entries) copy->set(runtime, key, value);
  return copy;
}

Value sequence_index(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "index");
  const Bound bound(runtime, arguments, "index", {"value", "start", "stop"}, 1);
  const auto& items = self.as<Sequence>()->items;
  const auto size = static_cast<int64_t>(items.size());
  const auto clamp = [size](int64_t at) {
    return std::clamp(at < 0 ? at + size : at, int64_t{0}, size);
  };
  const int64_t stop = clamp(bound.integer(2, size));
  for (int64_t i = clamp(bound.integer(1, 0)); i < stop; ++i) {
    if (is_equal(runtime, items[static_cast<size_t>(i)], bound[0])) return i;
  }
  runtime.fail("index(): the value is not in the list");
}

Value sequence_count(Runtime& runtime, const Value& self, Arguments& arguments) {
  refuse_keywords(runtime, arguments, "count");
  const Bound bound(runtime, arguments, "count", {"value"}, 1);
  int64_t n = 0;
  for (const Value& item : self.as<Sequence>()->items) n += is_equal(runtime, item, bound[0]);
  return n;
}

Value list_copy(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "copy", {});
  return runtime.list(self.as<Sequence>()->items);
}

Value float_is_integer(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "is_integer", {});
  return std::isfinite(self.real()) && self.real() == std::floor(self.real());
}

Value int_bit_length(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "bit_length", {});
  const int64_t value = self.integral();
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  return int64_t{magnitude == 0 ? 0 : 64 - __builtin_clzll(magnitude)};
}

constexpr MethodRow kDict[] = {
    {"get", dict_get},
    {"items", dict_view<ViewKind::items>},
    {"keys", dict_view<ViewKind::keys>},
    {"values", dict_view<ViewKind::values>},
    {"copy", dict_copy},
};
constexpr MethodRow kTuple[] = {{"index", sequence_index}, {"count", sequence_count}};
constexpr MethodRow kFloat[] = {{"is_integer", float_is_integer}};
constexpr MethodRow kInteger[] = {{"bit_length", int_bit_length}};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMutators[] = {"append", "clear", "pop",    "reverse",
                                              "insert", "sort",  "extend", "remove"};

template <size_t n>
Method find_in(const MethodRow (&rows)[n], std::string_view name) {
  const auto* row = std::find_if(rows, rows + n, [&](const auto& r) { return r.name == name; });
  return row == rows + n ? nullptr : row->method;
}

template <size_t n>
bool is_among(const std::string_view (&names)[n], std::string_view name) {
  return std::find(names, names + n, name) != names + n;
}

}  // namespace

bool is_mutator(const Value& self, std::string_view name) {
  if (self.as<Dict>()) return is_among(kDictMutators, name);
  const auto* sequence = self.as<Sequence>();
  return sequence != nullptr && sequence->is_list() && is_among(kListMutators, name);
}

Method find_method(const Value& self, std::string_view name) {
  if (self.is_text()) {
    const Method method = find_text_method(name);
    return method != nullptr ? method : find_text_case_method(name);
  }
  if (self.is(Kind::real)) return find_in(kFloat, name);
  if (self.is_integral()) return find_in(kInteger, name);
  if (self.as<Dict>()) return find_in(kDict, name);
  if (const auto* sequence = self.as<Sequence>()) {
    if (sequence->is_list() && name == "copy") return list_copy;
    return find_in(kTuple, name);
  }
  return nullptr;
}

}  // namespace octet::jinja
