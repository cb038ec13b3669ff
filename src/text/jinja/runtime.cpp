#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/operations.h"

namespace octet::jinja {

void Runtime::fail_with(const std::string& what) const {
  throw Error(ErrorCode::bad_data, "[template] line {}: {}", line, what);
}

void Runtime::check_defined(const Value& value) const {
  if (!value.is_undefined()) return;
  const auto& why = value.undefined().why;
  fail_with(why ? *why : "the value is undefined");
}

void Runtime::fail_type(std::string_view who, const char* what, const Value& got) const {
  check_defined(got);
  fail("{} expected {}, got {}", who, what, type_name(got));
}

void Runtime::fail_steps() const {
  throw BudgetExceeded(ErrorCode::bad_data,
                       "[template] line {}: expected a rendering of at most {} steps (seconds), "
                       "got more",
                       line, limits_.max_steps);
}

void Runtime::fail_depth() {
  --depth_;  // the guard that throws has no destructor to run
  fail("expected at most {} nested evaluations, got more", limits_.max_depth);
}

void Runtime::reserve(uint64_t n_bytes) {
  if (n_bytes > limits_.max_memory || used_ + n_bytes > limits_.max_memory) {
    fail("expected to need at most {} bytes of memory, got more", limits_.max_memory);
  }
  used_ += n_bytes;
}

void Runtime::reserve_text(uint64_t n_bytes) {
  if (n_bytes > limits_.max_text_bytes) {
    fail("expected text of at most {} bytes, got more", limits_.max_text_bytes);
  }
}

void Runtime::reserve_values(uint64_t n_values) {
  reserve(std::min(n_values, limits_.max_memory) * sizeof(Value));
  charge(1 + n_values / 4);
}

Value Runtime::text(std::string bytes, bool is_markup) {
  reserve_text(bytes.size());
  charge_bytes(bytes.size());
  charge(4);
  Reserved(*this).add(bytes.size() + Text::kOverhead);  // checked here, counted by the text
  return std::make_shared<const Text>(std::move(bytes), is_markup, &used_);
}

Sequence* Runtime::list(std::vector<Value> items, Type type) {
  reserve_values(items.size());
  return make<Sequence>(type, std::move(items));
}

}  // namespace octet::jinja
