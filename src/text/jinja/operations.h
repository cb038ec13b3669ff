// Python's operators on values. Whatever Python refuses with a TypeError throws.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "text/jinja/runtime.h"

namespace octet::jinja {

const char* type_name(const Value& value);
bool is_true(Runtime& runtime, const Value& value);

bool is_equal(Runtime& runtime, const Value& a, const Value& b);
bool is_less(Runtime& runtime, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);

enum class Operator { add, sub, mul, div, floor_div, mod, pow, eq, ne, lt, le, gt, ge, in, not_in };
Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b);
[[noreturn]] void fail_operands(Runtime& runtime, Operator op, const Value& a, const Value& b);
[[noreturn]] void fail_overflow(Runtime& runtime);  // integers have 64 bits
int64_t integer_of(Runtime& runtime, const Value& value, const char* what);

// len(); nothing where the type has no length.
std::optional<int64_t> length_of(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);

// What a value gives when it is walked through, which ends an iterator. What is no list is copied,
// and counted while it lives.
class Items {
 public:
  Items(Runtime& runtime, const Value& value);
  auto begin() const { return view_.begin(); }
  auto end() const { return view_.end(); }
  std::span<const Value> view() const { return view_; }
  std::vector<Value> copy() const { return std::vector<Value>(view_.begin(), view_.end()); }

 private:
  void fill(Runtime& runtime, const Value& value);

  Runtime::Reserved reserved_;
  std::vector<Value> own_;
  std::span<const Value> view_;
};

// The key of a dict or a set: equal for equal values. Throws for what cannot be hashed.
std::string hash_key(Runtime& runtime, const Value& value);

// value.name and value[key] as the sandbox gives them: undefined where there is nothing.
Value attribute_of(Runtime& runtime, const Value& value, const Value& name);
Value item_of(Runtime& runtime, const Value& value, const Value& key);

struct SliceBounds {
  std::optional<int64_t> start, stop, step;
};
Value slice_of(Runtime& runtime, const Value& value, const SliceBounds& bounds);

// `part` in `text` from byte `from` on, or npos. Linear, whatever they are.
size_t find_text(Runtime& runtime, std::string_view text, std::string_view part, size_t from = 0);
// A markup as it is; anything else as text with &<>'" escaped, marked.
Value escaped(Runtime& runtime, const Value& value);

}  // namespace octet::jinja
