#include <cmath>

#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

// Exact for every integer and every double.
long double exact(const Value& value) {
  return value.is(Kind::real) ? static_cast<long double>(value.real())
                              : static_cast<long double>(value.integral());
}

bool are_equal_items(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (a.type != b.type || a.items.size() != b.items.size()) return false;
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

// Whether `op` holds where a comes before (-1), with (0) or after b (1).
bool holds(Operator op, int order) {
  if (op == Operator::lt) return order < 0;
  if (op == Operator::le) return order <= 0;
  return op == Operator::gt ? order > 0 : order >= 0;
}

template <typename T>
int order_of(T a, T b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

bool is_ordered(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  const Runtime::Depth depth(runtime);
  runtime.charge(1);
  if (a.is_number() && b.is_number()) {
    const long double x = exact(a), y = exact(b);
    return !std::isnan(x) && !std::isnan(y) && holds(op, order_of(x, y));
  }
  if (a.is_text() && b.is_text()) {  // the order of bytes is that of code points
    return holds(op, runtime.read(a).compare(runtime.read(b)));
  }
  const auto *x = a.as<Sequence>(), *y = b.as<Sequence>();
  if (x == nullptr || y == nullptr || x->type != y->type) fail_operands(runtime, op, a, b);
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    if (is_equal(runtime, x->items[i], y->items[i])) continue;
    return is_ordered(runtime, op, x->items[i], y->items[i]);
  }
  return holds(op, order_of(x->items.size(), y->items.size()));
}

}  // namespace

bool is_equal(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::Depth depth(runtime);
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return exact(a) == exact(b);
  if (a.kind() != b.kind()) return false;
  if (a.is_text()) return a.n_bytes() == b.n_bytes() && runtime.read(a) == runtime.read(b);
  return a.object() == nullptr || are_equal_objects(runtime, a, b);  // undefined, none: alike
}

bool is_less(Runtime& runtime, const Value& a, const Value& b) {
  return is_ordered(runtime, Operator::lt, a, b);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) {
      runtime.fail("'in <string>' requires text as left operand, got {}", type_name(item));
    }
    const std::string &text = runtime.read(container), &part = runtime.read(item);
    return find_text(runtime, text, part) != std::string::npos;
  }
  const auto* view = container.as<DictView>();
  const bool is_keys = view != nullptr && view->type == Type::keys;
  const Dict* dict = is_keys ? view->dict : container.as<Dict>();
  if (dict != nullptr) return dict->find(runtime, item) != nullptr;
  for (const Value& value : Items(runtime, container)) {
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
