// The arguments of a call, bound to the parameters of a built-in function as Python binds them.
#pragma once

#include <initializer_list>
#include <optional>

#include "text/jinja/runtime.h"

namespace octet::jinja {

enum class Keywords { allowed, refused };  // refused: Python's methods in C take positions alone

class Bound {
 public:
  // Throws where an argument is missing, unknown, twice there or too many.
  Bound(Runtime& runtime, const Arguments& arguments, const char* function,
        std::initializer_list<const char*> names, size_t n_required = 0);

  bool has(size_t i) const { return values_[i].has_value(); }
  const Value& operator[](size_t i) const { return *values_[i]; }  // has(i)
  Value get(size_t i, Value fallback) const { return has(i) ? *values_[i] : std::move(fallback); }
  bool truth(size_t i, bool fallback) const;
  int64_t integer(size_t i, int64_t fallback) const;
  const std::string& text(size_t i) const;  // throws unless it is text
  // Nothing where it is absent or None.
  std::optional<int64_t> optional_integer(size_t i) const;
  bool is_given(size_t i) const { return has(i) && !values_[i]->is_none(); }

 private:
  Runtime& runtime_;
  const char* function_;
  std::vector<std::optional<Value>> values_;
};

void refuse_keywords(Runtime& runtime, const Arguments& arguments, const char* function);
// An integer as Python's __index__ gives it.
int64_t integer_of(Runtime& runtime, const Value& value, const char* what);

}  // namespace octet::jinja
