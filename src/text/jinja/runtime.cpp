#include "text/jinja/runtime.h"

#include "text/jinja/operations.h"
#include "text/jinja/print.h"

namespace octet::jinja {

void Runtime::fail_with(const std::string& what) const {
  throw Error(ErrorCode::bad_data, "[template] line {}: {}", line, what);
}

void Runtime::fail_undefined(const Value& value) const {
  const auto& why = value.undefined().why;
  fail_with(why ? *why : "the value is undefined");
}

void Runtime::fail_steps() const {
  fail("expected at most {} steps, got more", limits_.max_steps);
}

void Runtime::fail_depth() {
  --depth_;  // the guard that throws has no destructor to run
  fail("expected at most {} nested evaluations, got more", limits_.max_depth);
}

void Runtime::reserve_text(uint64_t n_bytes) {
  if (n_bytes > limits_.max_text_bytes) {
    fail("expected text of at most {} bytes, got more", limits_.max_text_bytes);
  }
  if (used_ + n_bytes > limits_.max_memory) {
    fail("expected to need at most {} bytes of memory, got more", limits_.max_memory);
  }
  charge(n_bytes / 16);
}

void Runtime::reserve_values(uint64_t n_values) {
  if (n_values > limits_.max_memory / sizeof(Value) ||
      used_ + n_values * sizeof(Value) > limits_.max_memory) {
    fail("expected to need at most {} bytes of memory, got more", limits_.max_memory);
  }
  used_ += n_values * sizeof(Value);
  charge(n_values);
}

Value Runtime::text(std::string bytes, bool is_markup) {
  reserve_text(bytes.size());
  return std::make_shared<const Text>(std::move(bytes), is_markup, &used_);
}

Value Runtime::undefined(std::string why) {
  return Undefined{std::make_shared<const std::string>(std::move(why))};
}

Value Runtime::attribute_missing(const Value& of, const Value& name) {
  const std::string owner = of.is_none() ? "None" : fmt::format("{} object", type_name(of));
  if (!name.is_text()) return undefined(fmt::format("{} has no such element", owner));
  return undefined(fmt::format("'{}' has no attribute '{}'", owner, name.text()));
}

Sequence* Runtime::list(std::vector<Value> items, SequenceKind kind) {
  reserve_values(items.size());
  auto* sequence = make<Sequence>();
  sequence->kind = kind;
  sequence->items = std::move(items);
  return sequence;
}

Value Runtime::iterator(Next next, const char* type) {
  auto* iterator = make<Iterator>();
  iterator->next = std::move(next);
  iterator->type = type;
  return iterator;
}

Value Runtime::function(std::string name, Callable body) {
  auto* function = make<Function>();
  function->name = std::move(name);
  function->body = std::move(body);
  return function;
}

}  // namespace octet::jinja
