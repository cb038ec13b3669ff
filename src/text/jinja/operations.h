// Python's operators on values. Whatever Python refuses with a TypeError throws.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "text/jinja/runtime.h"

namespace octet::jinja {

const char* type_name(const Value& value);
bool is_true(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
// len(); nothing where the type has no length.
std::optional<int64_t> length_of(Runtime& runtime, const Value& value);
int64_t integer_of(Runtime& runtime, const Value& value, std::string_view who);

enum class Operator { add, sub, mul, div, floor_div, mod, eq, ne, lt, le, gt, ge, in, not_in };
Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b);
[[noreturn]] void fail_overflow(Runtime& runtime);  // integers have 64 bits

// Items that a value gives when it is walked through, which ends a generator. What is no list is
// copied, and counted while it lives.
class Items {
 public:
  Items(Runtime& runtime, const Value& value);
  auto begin() const { return view_.begin(); }
  auto end() const { return view_.end(); }
  std::span<const Value> view() const { return view_; }
  std::vector<Value> copy() const { return std::vector<Value>(view_.begin(), view_.end()); }

 private:
  Runtime::Reserved reserved_;
  std::vector<Value> own_;
  std::span<const Value> view_;
};

// (key, value) for each.
std::vector<Value> pairs_of(Runtime& runtime, const Dict& dict);
// The key of a dict or a set: equal for equal values. Throws for what cannot be hashed.
std::string hash_key(Runtime& runtime, const Value& value);

// value.key and value[key] as the sandbox gives them: undefined where there is nothing. Either
// falls back to the other.
enum class Access { attribute, item };
Value member_of(Runtime& runtime, Access first, const Value& value, const Value& key);

struct SliceBounds {
  std::optional<int64_t> start, stop, step;
};
Value slice_of(Runtime& runtime, const Value& value, const SliceBounds& bounds);

// `part` in `text` from byte `from` on, or npos. Linear, whatever they are.
size_t find_text(Runtime& runtime, std::string_view text, std::string_view part, size_t from = 0);

// Text with &<>'" escaped and marked, but where it is marked already.
Value escaped(Runtime& runtime, const Value& text);

// Texts as Python's str() and repr() give them, and as json.dumps does (print.cpp).
std::string float_repr(double value);
void append_text(Builder& out, const Value& value);  // str(value), after what is there
// A text as it is, anything else as str() gives it.
Value as_text(Runtime& runtime, const Value& value);
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // of a level; none: on one line
  std::string item_separator = ", ", key_separator = ": ";
};
// Throws where a value has no form in JSON.
void append_json(Builder& out, const Value& value, const JsonStyle& style);

}  // namespace octet::jinja
