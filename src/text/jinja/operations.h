// Python's operators on values. Whatever Python refuses with a TypeError throws.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace octet::jinja {

const char* type_name(const Value& value);
bool is_true(Runtime& runtime, const Value& value);

bool is_equal(Runtime& runtime, const Value& a, const Value& b);
bool is_same(const Value& a, const Value& b);  // Python's `is`
bool is_less(Runtime& runtime, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);

enum class Operator { add, sub, mul, div, floor_div, mod, pow, eq, ne, lt, le, gt, ge, in, not_in };
const char* symbol(Operator op);
Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value negate(Runtime& runtime, const Value& value);

// len(); nothing where the type has no length.
std::optional<int64_t> length_of(Runtime& runtime, const Value& value);
int64_t length(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
Next iterate(Runtime& runtime, const Value& value);
Sequence* to_list(Runtime& runtime, const Value& value);

// The key of a dict or a set: equal for equal values. Throws for what cannot be hashed.
std::string hash_key(Runtime& runtime, const Value& value);

// value.name and value[key] as the sandbox gives them: undefined where there is nothing.
Value attribute_of(Runtime& runtime, const Value& value, const std::string& name);
Value item_of(Runtime& runtime, const Value& value, const Value& key);

struct SliceBounds {
  std::optional<int64_t> start, stop, step;
};
Value slice_of(Runtime& runtime, const Value& value, const SliceBounds& bounds);
Value reversed_text(Runtime& runtime, const Value& text);
// reversed(): an iterator; nothing where the type cannot be walked backwards.
std::optional<Value> reversed_of(Runtime& runtime, const Value& value);

}  // namespace octet::jinja
