// Filters that apply a filter or a test to each item. All are lazy: what they yield is made, and
// what is wrong is found, when it is walked through.
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

using Change = std::function<Value(const Value&)>;

const std::string& name_of(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (!value.is_text()) runtime.fail("expected a name, got {}", type_name(value));
  return value.text();
}

Arguments without_first(const Arguments& arguments, size_t n) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<ptrdiff_t>(n));
  return rest;
}

Change map_attribute(Runtime& runtime, const Arguments& arguments) {
  std::optional<Value> attribute;
  Value fallback = None{};
  for (const auto& [key, value] : arguments.named) {
    if (key == "attribute") {
      attribute = value;
    } else if (key == "default") {
      fallback = value;
    } else {
      runtime.fail("map has no parameter '{}'", key);
    }
  }
  return [get = AttributeGetter(runtime, *attribute), fallback](const Value& item) {
    return get(item, &fallback);
  };
}

Change map_change(Runtime& runtime, const Arguments& arguments) {
  const bool has_attribute =
      std::any_of(arguments.named.begin(), arguments.named.end(),
                  [](const auto& named) { return named.first == "attribute"; });
  if (arguments.positional.empty() && has_attribute) return map_attribute(runtime, arguments);
  if (arguments.positional.empty()) runtime.fail("map requires a filter argument");
  const std::string& name = name_of(runtime, arguments.positional[0]);
  const Filter filter = find_filter(name);
  if (filter == nullptr) fail_unknown_filter(runtime, name);
  return [&runtime, filter, rest = without_first(arguments, 1)](const Value& item) {
    Arguments given = rest;
    return filter(runtime, item, given);
  };
}

Value map(Runtime& runtime, const Value& self, Arguments& arguments) {
  return runtime.iterator(
      [&runtime, self, arguments, change = Change(), next = Next()](Value& out) mutable {
        if (!change) {
          if (!is_true(runtime, self)) return false;
          change = map_change(runtime, arguments);
          next = iterate(runtime, self);
        }
        Value item;
        if (!next(item)) return false;
        out = change(item);
        return true;
      });
}

using Keeps = std::function<bool(const Value&)>;

Keeps make_keeps(Runtime& runtime, const Arguments& arguments, bool has_attribute) {
  if (has_attribute && arguments.positional.empty()) {
    runtime.fail("expected the name of an attribute");
  }
  const size_t at = has_attribute ? 1 : 0;
  const AttributeGetter get(runtime, has_attribute ? arguments.positional[0] : Value(None{}));
  if (arguments.positional.size() <= at) {
    return [&runtime, get](const Value& item) { return is_true(runtime, get(item)); };
  }
  const std::string& name = name_of(runtime, arguments.positional[at]);
  const Test test = find_test(name);
  if (test == nullptr) fail_unknown_test(runtime, name);
  return [&runtime, get, test, rest = without_first(arguments, at + 1)](const Value& item) {
    Arguments given = rest;
    return test(runtime, get(item), given);
  };
}

template <bool has_attribute, bool keeps_true>
Value select(Runtime& runtime, const Value& self, Arguments& arguments) {
  return runtime.iterator(
      [&runtime, self, arguments, keeps = Keeps(), next = Next()](Value& out) mutable {
        if (!keeps) {
          if (!is_true(runtime, self)) return false;
          keeps = make_keeps(runtime, arguments, has_attribute);
          next = iterate(runtime, self);
        }
        for (Value item; next(item);) {
          if (keeps(item) != keeps_true) continue;
          out = item;
          return true;
        }
        return false;
      });
}

constexpr MethodRow kSelectFilters[] = {
    {"map", map},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
};

}  // namespace

Filter find_select_filter(std::string_view name) {
  return find_row(kSelectFilters, name);
}

}  // namespace octet::jinja
