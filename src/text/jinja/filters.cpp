#include "text/jinja/filters.h"

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {

Filter find_filter(std::string_view name) {
  for (const auto find : {find_text_filter, find_sequence_filter, find_select_filter,
                          find_number_filter, find_order_filter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

bool is_unsupported_filter(std::string_view name) {
  static constexpr std::string_view kNames[] = {"pprint", "random",   "striptags",
                                                "urlize", "wordwrap", "xmlattr"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void fail_unknown_filter(Runtime& runtime, std::string_view name) {
  if (is_unsupported_filter(name)) {
    runtime.fail("filter '{}' is outside the supported subset", name);
  }
  runtime.fail("there is no filter '{}'", name);
}

void fail_unknown_test(Runtime& runtime, std::string_view name) {
  runtime.fail("there is no test '{}'", name);
}

AttributeGetter::AttributeGetter(Runtime& runtime, const Value& attribute) : runtime_(runtime) {
  if (attribute.is_none()) return;
  if (!attribute.is_text()) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.text();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string part(rest.substr(0, dot));
    const bool is_index = part.size() < 18 && is_class(part, TextClass::decimal) && is_ascii(part);
    parts_.push_back(is_index ? Value(int64_t{std::stoll(part)}) : runtime.text(part));
    if (dot == rest.size()) return;
    rest.remove_prefix(dot + 1);
  }
}

Value AttributeGetter::operator()(const Value& item, const Value* fallback) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = item_of(runtime_, value, part);
    if (value.is_undefined() && fallback != nullptr && !fallback->is_none()) value = *fallback;
  }
  return value;
}

Value without_case(Runtime& runtime, const Value& value) {
  return value.is_text() ? runtime.text(to_lower(value.text())) : value;
}

}  // namespace octet::jinja
