#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/print.h"
#include "text/jinja/text_helpers.h"

namespace octet::jinja {
namespace {

Value length_filter(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "length", {});
  return length(runtime, self);
}

Value default_filter(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "default", {"default_value", "boolean"});
  const bool is_replaced =
      self.is_undefined() || (bound.truth(1, false) && !is_true(runtime, self));
  return is_replaced ? bound.get(0, runtime.text("")) : self;
}

Value first(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "first", {});
  Value value;
  if (iterate(runtime, self)(value)) return value;
  return runtime.undefined("no first item, the sequence is empty");
}

Value last(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "last", {});
  if (self.is_undefined()) return runtime.undefined("no last item, the sequence is empty");
  const auto backwards = reversed_of(runtime, self);
  if (!backwards) runtime.fail("'{}' object is not reversible", type_name(self));
  Value value;
  if (backwards->as<Iterator>()->next(value)) return value;
  return runtime.undefined("no last item, the sequence is empty");
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "join", {"d", "attribute"});
  const std::string separator = bound.has(0) ? str(runtime, bound[0]) : "";
  const AttributeGetter get(runtime, bound.get(1, None{}));
  std::string joined;
  bool is_first = true;
  const Next next = iterate(runtime, self);
  for (Value item; next(item); is_first = false) {
    if (!is_first) joined += separator;
    joined += str(runtime, get(item));
    check_size(runtime, joined);
  }
  return runtime.text(std::move(joined));
}

Value list(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "list", {});
  return to_list(runtime, self);
}

Value items(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "items", {});
  // As a generator does, it looks at its value when it is first walked.
  return runtime.iterator([&runtime, self, next = Next()](Value& out) mutable {
    if (self.is_undefined()) return false;
    if (!next) {
      if (self.as<Dict>() == nullptr) runtime.fail("can only get item pairs from a mapping");
      auto* view = runtime.make<DictView>();
      view->kind = ViewKind::items;
      view->dict = self.as<Dict>();
      next = iterate(runtime, view);
    }
    return next(out);
  });
}

Value reverse(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "reverse", {});
  if (self.is_text()) return reversed_text(runtime, self);
  if (auto backwards = reversed_of(runtime, self)) return *backwards;
  if (!is_iterable(self)) runtime.fail("reverse: expected something to walk through");
  std::vector<Value> items = to_list(runtime, self)->items;
  return runtime.list(std::vector<Value>(items.rbegin(), items.rend()));
}

Value sum(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "sum", {"attribute", "start"});
  const AttributeGetter get(runtime, bound.get(0, None{}));
  Value total = bound.get(1, int64_t{0});
  if (total.is_text()) runtime.fail("sum() can't sum strings");
  const Next next = iterate(runtime, self);
  for (Value item; next(item);) total = arithmetic(runtime, Operator::add, total, get(item));
  return total;
}

Value batch(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "batch", {"linecount", "fill_with"}, 1);
  const int64_t n = bound.integer(0, 0);
  const Value fill = bound.get(1, None{});
  const Next next = iterate(runtime, self);
  return runtime.iterator([&runtime, n, fill, next, kept = std::optional<Value>(),
                           is_done = false](Value& out) mutable {
    std::vector<Value> row;
    if (is_done) return false;
    if (kept) row.push_back(*std::exchange(kept, std::nullopt));
    for (Value item; next(item); row.push_back(item)) {
      if (static_cast<int64_t>(row.size()) != n) continue;
      kept = item;
      out = runtime.list(std::move(row));
      return true;
    }
    is_done = true;
    if (row.empty()) return false;
    const auto size = static_cast<int64_t>(row.size());
    if (!fill.is_none() && size < n) {
      runtime.reserve_values(static_cast<uint64_t>(n));
      row.resize(static_cast<size_t>(n), fill);
    }
    out = runtime.list(std::move(row));
    return true;
  });
}

Value slice(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "slice", {"slices", "fill_with"}, 1);
  const int64_t n_slices = bound.integer(0, 0);
  const Value fill = bound.get(1, None{});
  const Sequence* items = to_list(runtime, self);
  if (n_slices == 0) runtime.fail("division by zero");
  const auto size = static_cast<int64_t>(items->items.size());
  return runtime.iterator([&runtime, n_slices, fill, items, size, i = int64_t{0},
                           begin = int64_t{0}](Value& out) mutable {
    if (i >= n_slices) return false;
    runtime.charge(1);
    const bool has_extra = i < size % n_slices;
    const int64_t end = begin + size / n_slices + (has_extra ? 1 : 0);
    std::vector<Value> row(items->items.begin() + begin, items->items.begin() + end);
    if (!fill.is_none() && !has_extra) row.push_back(fill);
    begin = end;
    ++i;
    out = runtime.list(std::move(row));
    return true;
  });
}

Value attr(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(runtime, arguments, "attr", {"name"}, 1);
  const std::string& name = bound.text(0);
  // The attribute, never the item: an item of this name stands in for none.
  if (self.as<Dict>() && !find_method(self, name) && !is_mutator(self, name)) {
    return runtime.attribute_missing(self, bound[0]);
  }
  return attribute_of(runtime, self, name);
}

constexpr MethodRow kSequenceFilters[] = {
    {"length", length_filter},
    {"count", length_filter},
    {"default", default_filter},
    {"d", default_filter},
    {"first", first},
    {"last", last},
    {"join", join},
    {"list", list},
    {"items", items},
    {"reverse", reverse},
    {"sum", sum},
    {"batch", batch},
    {"slice", slice},
    {"attr", attr},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  return find_row(kSequenceFilters, name);
}

}  // namespace octet::jinja
