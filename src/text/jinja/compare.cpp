#include <cmath>

#include "text/jinja/operations.h"
#include "text/jinja/text_helpers.h"

namespace octet::jinja {
namespace {

// Exact for every integer and every double.
long double exact(const Value& value) {
  return value.is(Kind::real) ? static_cast<long double>(value.real())
                              : static_cast<long double>(value.integral());
}

bool are_equal_items(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (a.is_list() != b.is_list() || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!is_equal(runtime, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool are_equal_entries(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(runtime, key);
    if (other == nullptr || !is_equal(runtime, value, *other)) return false;
  }
  return true;
}

bool are_equal_ranges(const Range& a, const Range& b) {
  const int64_t n = a.length();
  return n == b.length() && (n == 0 || (a.start == b.start && (n == 1 || a.step == b.step)));
}

bool are_equal_objects(Runtime& runtime, const Value& a, const Value& b) {
  if (a.object() == b.object()) return true;
  const auto *list_a = a.as<Sequence>(), *list_b = b.as<Sequence>();
  if (list_a != nullptr && list_b != nullptr) return are_equal_items(runtime, *list_a, *list_b);
  const auto *dict_a = a.as<Dict>(), *dict_b = b.as<Dict>();
  if (dict_a != nullptr && dict_b != nullptr) return are_equal_entries(runtime, *dict_a, *dict_b);
  const auto *range_a = a.as<Range>(), *range_b = b.as<Range>();
  return range_a != nullptr && range_b != nullptr && are_equal_ranges(*range_a, *range_b);
}

[[noreturn]] void fail_order(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) runtime.fail_undefined(a);
  if (b.is_undefined()) runtime.fail_undefined(b);
  runtime.fail("'{}' is not supported between {} and {}", symbol(op), type_name(a), type_name(b));
}

bool holds(Operator op, int order) {
  switch (op) {
    case Operator::lt:
      return order < 0;
    case Operator::le:
      return order <= 0;
    case Operator::gt:
      return order > 0;
    default:
      return order >= 0;
  }
}

bool is_ordered(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  const Runtime::Depth depth(runtime);
  runtime.charge(1);
  if (a.is_number() && b.is_number()) {
    const long double x = exact(a), y = exact(b);
    if (std::isnan(x) || std::isnan(y)) return false;
    return holds(op, x < y ? -1 : x > y ? 1 : 0);
  }
  if (a.is_text() && b.is_text()) {
    runtime.charge(std::min(a.text().size(), b.text().size()) / 16);
    return holds(op, a.text().compare(b.text()));  // the order of bytes is that of code points
  }
  const auto *x = a.as<Sequence>(), *y = b.as<Sequence>();
  if (x == nullptr || y == nullptr || x->is_list() != y->is_list()) fail_order(runtime, op, a, b);
  const size_t n = std::min(x->items.size(), y->items.size());
  for (size_t i = 0; i < n; ++i) {
    if (is_equal(runtime, x->items[i], y->items[i])) continue;
    return is_ordered(runtime, op, x->items[i], y->items[i]);
  }
  const auto length = [](const Sequence* s) { return static_cast<int64_t>(s->items.size()); };
  return holds(op, length(x) < length(y) ? -1 : length(x) > length(y) ? 1 : 0);
}

}  // namespace

bool is_equal(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::Depth depth(runtime);
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return exact(a) == exact(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::text:
      runtime.charge(a.text().size() / 32);
      return a.text() == b.text();
    case Kind::object:
      return are_equal_objects(runtime, a, b);
    default:
      return true;  // undefined, none
  }
}

bool is_same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::none:
      return true;
    case Kind::undefined:
      return a.undefined().why == b.undefined().why;
    case Kind::boolean:
      return a.boolean() == b.boolean();
    case Kind::integer:  // CPython keeps one object of each small integer
      return a.integral() == b.integral();
    case Kind::real:
      return a.real() == b.real();
    case Kind::text:
      return a.text() == b.text();
    case Kind::object:
      return a.object() == b.object();
  }
  return false;
}

bool is_less(Runtime& runtime, const Value& a, const Value& b) {
  return is_ordered(runtime, Operator::lt, a, b);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (item.is_undefined()) runtime.fail("'in <string>' requires text, got undefined");
    if (!item.is_text()) {
      runtime.fail("'in <string>' requires text as left operand, got {}", type_name(item));
    }
    charge_search(runtime, container.text(), item.text());
    return container.text().find(item.text()) != std::string::npos;
  }
  if (const auto* dict = container.as<Dict>()) return dict->find(runtime, item) != nullptr;
  if (const auto* view = container.as<DictView>(); view && view->kind == ViewKind::keys) {
    return view->dict->find(runtime, item) != nullptr;
  }
  if (!is_iterable(container)) {
    runtime.fail("argument of type '{}' is not iterable", type_name(container));
  }
  const Next next = iterate(runtime, container);
  for (Value value; next(value);) {
    if (is_equal(runtime, value, item)) return true;
  }
  return false;
}

bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::eq:
      return is_equal(runtime, a, b);
    case Operator::ne:
      return !is_equal(runtime, a, b);
    case Operator::in:
      return contains(runtime, b, a);
    case Operator::not_in:
      return !contains(runtime, b, a);
    default:
      return is_ordered(runtime, op, a, b);
  }
}

}  // namespace octet::jinja
