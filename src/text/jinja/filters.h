// The filters and tests of templates, by name.
#pragma once

#include "text/jinja/methods.h"

namespace octet::jinja {

using Filter = Method;
using Test = bool (*)(Runtime& runtime, const Value& value, Arguments& arguments);

// Null where there is none of this name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
// Jinja's filters that are outside the supported subset.
bool is_unsupported_filter(std::string_view name);
[[noreturn]] void fail_unknown_filter(Runtime& runtime, std::string_view name);
[[noreturn]] void fail_unknown_test(Runtime& runtime, std::string_view name);

// By kind; find_filter asks each.
Filter find_text_filter(std::string_view name);
Filter find_number_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Filter find_order_filter(std::string_view name);   // sort, unique, min, groupby ...
Filter find_select_filter(std::string_view name);  // map, select ...

// Reads what `attribute=` names: "a.b.0", an integer, or several with commas where a filter
// allows it.
class AttributeGetter {
 public:
  AttributeGetter(Runtime& runtime, const Value& attribute);
  Value operator()(const Value& item, const Value* fallback = nullptr) const;

 private:
  Runtime& runtime_;
  std::vector<Value> parts_;
};
// Text in lower case, anything else as it is.
Value without_case(Runtime& runtime, const Value& value);

template <size_t n>
Method find_row(const MethodRow (&rows)[n], std::string_view name) {
  for (const MethodRow& row : rows) {
    if (row.name == name) return row.method;
  }
  return nullptr;
}

}  // namespace octet::jinja
