// The methods of Python's built-in types that templates may call.
#pragma once

#include "text/jinja/runtime.h"

namespace octet::jinja {

using Method = Value (*)(Runtime& runtime, const Value& self, Arguments& arguments);

// Null where the type has no such method, or the sandbox refuses it.
Method find_method(const Value& self, std::string_view name);

// Methods that Python has and the sandbox refuses, since they change what they are called on.
bool is_mutator(const Value& self, std::string_view name);

struct MethodRow {
  std::string_view name;
  Method method;
};
Method find_text_method(std::string_view name);       // cutting, joining, searching
Method find_text_case_method(std::string_view name);  // case, classes, padding

}  // namespace octet::jinja
