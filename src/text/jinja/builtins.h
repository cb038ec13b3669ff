// The filters, tests, functions and methods of templates: rows of tables, with one way to call
// them.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "text/jinja/operations.h"

namespace octet::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Uses that a row may be called as.
enum Use : unsigned {
  kFilter = 1,
  kTest = 2,
  kFunction = 4,
  kOfText = 8,
  kOfList = 16,
  kOfDict = 32,
  kMadeText = 64,  // a filter that makes text of its value first
  kTag = 128,      // of what is outside alone
};

struct Call;
struct Builtin {
  std::string_view name;
  unsigned uses = 0;
  Value (*run)(Call& call) = nullptr;
  std::string_view parameters = "";  // "a,b"; "/a,b": by position alone; "*": any, not bound
  size_t n_required = 0;
};

// One call of a built-in, its arguments bound to its parameters as Python binds them.
struct Call {
  Call(Runtime& in, const Builtin& of, const Value& on, const Arguments& arguments);

  bool has(size_t i) const { return values[i].has_value(); }
  bool is_given(size_t i) const { return has(i) && !values[i]->is_none(); }
  Value get(size_t i, const Value& fallback = None{}) const {
    return has(i) ? *values[i] : fallback;
  }
  int64_t integer(size_t i, int64_t fallback) const {
    return has(i) ? integer_of(runtime, *values[i], row.name) : fallback;
  }
  Items items() const { return Items(runtime, self); }
  bool truth(size_t i) const { return has(i) && is_true(runtime, *values[i]); }
  const std::string& text(size_t i) const;  // of parameter i, which must be text
  // Item of `of` named by parameter `i`, "a.b.0" or an integer; `of` itself where it names nothing.
  Value attribute(size_t i, const Value& of, const Value& fallback = None{}) const;

  Runtime& runtime;
  const Builtin& row;
  const Value& self;
  const Arguments& given;
  std::vector<std::optional<Value>> values;  // by parameter
};

// Null where there is none of this name.
const Builtin* find_builtin(unsigned use, std::string_view name);
const Builtin* find_method(const Value& self, std::string_view name);
// Methods that Python has and the sandbox refuses, since they change what they are called on.
bool is_mutator(const Value& self, std::string_view name);
// True of what Jinja and Python have beyond this subset. kOfText: the methods of every type.
bool is_outside(Use use, std::string_view name);
[[noreturn]] void fail_unknown(Runtime& runtime, Use use, std::string_view name);

Value invoke(Runtime& runtime, const Builtin& row, const Value& self, const Arguments& arguments);

// The rows, by file.
std::span<const Builtin> text_rows();
std::span<const Builtin> item_rows();
std::span<const Builtin> value_rows();
std::span<const Builtin> function_rows();

}  // namespace octet::jinja
