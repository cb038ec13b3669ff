#include "text/jinja/arguments.h"

#include "text/jinja/operations.h"

namespace octet::jinja {

Bound::Bound(Runtime& runtime, const Arguments& arguments, const char* function,
             std::initializer_list<const char*> names, size_t n_required)
    : runtime_(runtime), function_(function), values_(names.size()) {
  if (arguments.positional.size() > names.size()) {
    runtime.fail("{}() expected at most {} arguments, got {}", function, names.size(),
                 arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [key, value] : arguments.named) {
    size_t at = 0;
    while (at < names.size() && key != names.begin()[at]) ++at;
    if (at == names.size()) runtime.fail("{}() has no parameter '{}'", function, key);
    if (values_[at]) runtime.fail("{}() expected '{}' once, got it twice", function, key);
    values_[at] = value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (!values_[i]) runtime.fail("{}() lacks its argument '{}'", function, names.begin()[i]);
  }
}

bool Bound::truth(size_t i, bool fallback) const {
  return has(i) ? is_true(runtime_, *values_[i]) : fallback;
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  return has(i) ? integer_of(runtime_, *values_[i], function_) : fallback;
}

std::optional<int64_t> Bound::optional_integer(size_t i) const {
  if (!is_given(i)) return std::nullopt;
  return integer_of(runtime_, *values_[i], function_);
}

const std::string& Bound::text(size_t i) const {
  const Value& value = *values_[i];
  if (value.is_undefined()) runtime_.fail_undefined(value);
  if (!value.is_text()) {
    runtime_.fail("{}() expected text, got {}", function_, type_name(value));
  }
  return value.text();
}

void refuse_keywords(Runtime& runtime, const Arguments& arguments, const char* function) {
  if (!arguments.named.empty()) runtime.fail("{}() takes no keyword arguments", function);
}

int64_t integer_of(Runtime& runtime, const Value& value, const char* what) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (!value.is_integral()) {
    runtime.fail("{} expected an integer, got {}", what, type_name(value));
  }
  return value.integral();
}

}  // namespace octet::jinja
