// value.name, value[key], value[a:b:c].
#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

// The first of the two look-ups: what getattr gives in the sandbox. False where Python would raise
// AttributeError.
bool get_attribute(Runtime& runtime, const Value& value, const std::string& name, Value& out) {
  if (value.is_undefined()) {
    if (name.starts_with("__") && name.ends_with("__")) return false;
    runtime.fail_undefined(value);
  }
  if (value.object() != nullptr && value.object()->attribute(runtime, name, out)) return true;
  if (is_mutator(value, name)) {
    out = runtime.undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
    return true;
  }
  if (const Method method = find_method(value, name)) {
    out = runtime.function(name, [method, value](Runtime& at, Arguments& arguments) {
      return method(at, value, arguments);
    });
    return true;
  }
  return false;
}

// Names that Python's objects have and the sandbox hides: using what comes back throws.
bool is_hidden(const std::string& name) {
  return name.starts_with("__") && name.ends_with("__");
}

// Those of them that every object has: on an undefined value all others fail, as its items do.
bool every_object_has(const std::string& name) {
  constexpr std::string_view names[] = {
      "__class__",  "__delattr__", "__dir__",   "__doc__",     "__eq__",   "__format__",
      "__ge__",     "__gt__",      "__hash__",  "__init__",    "__le__",   "__lt__",
      "__module__", "__ne__",      "__new__",   "__reduce__",  "__repr__", "__setattr__",
      "__sizeof__", "__str__",     "__slots__", "__getattr__", "__call__", "__getitem__",
      "__iter__",   "__len__",     "__bool__",  "__add__",     "__int__",  "__float__"};
  return std::ranges::find(names, name) != std::end(names);
}

Value hidden(Runtime& runtime, const Value& value, const std::string& name) {
  return runtime.undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
}

// The item, or false where Python raises TypeError or LookupError.
bool get_item(Runtime& runtime, const Value& value, const Value& key, Value& out) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (const auto* dict = value.as<Dict>()) {
    if (key.as<Dict>() || (key.as<Sequence>() && key.as<Sequence>()->is_list())) return false;
    const Value* found = dict->find(runtime, key);
    if (found != nullptr) out = *found;
    return found != nullptr;
  }
  if (!key.is_integral()) return false;
  const auto n = length_of(runtime, value);
  if (!n || value.as<DictView>()) return false;
  const int64_t i = key.integral() < 0 ? key.integral() + *n : key.integral();
  if (i < 0 || i >= *n) return false;
  if (const auto* sequence = value.as<Sequence>()) {
    out = sequence->items[static_cast<size_t>(i)];
  } else if (const auto* range = value.as<Range>()) {
    out = range->start + i * range->step;
  } else {
    const auto offsets = character_offsets(value.text());
    const size_t at = static_cast<size_t>(i);
    runtime.charge(value.text().size() / 8);
    out = runtime.text(value.text().substr(offsets[at], offsets[at + 1] - offsets[at]),
                       value.is_markup());
  }
  return true;
}

struct SliceRange {
  int64_t start, step, n;
};

// As slice.indices() counts them.
SliceRange resolve(Runtime& runtime, const SliceBounds& bounds, int64_t length) {
  const int64_t step = bounds.step.value_or(1);
  if (step == 0) runtime.fail("the step of a slice cannot be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) return fallback;
    const int64_t at = *bound < 0 ? *bound + length : *bound;
    return std::clamp(at, low, high);
  };
  const int64_t start = clamp(bounds.start, step > 0 ? low : high);
  const int64_t stop = clamp(bounds.stop, step > 0 ? high : low);
  const int64_t span = step > 0 ? stop - start : start - stop;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const int64_t n =
      span > 0 ? static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride) + 1 : 0;
  return {start, step, n};
}

Value slice_text(Runtime& runtime, const Value& value, const SliceBounds& bounds) {
  const std::string& text = value.text();
  const auto offsets = character_offsets(text);
  const auto [start, step, n] = resolve(runtime, bounds, static_cast<int64_t>(offsets.size()) - 1);
  runtime.charge(text.size() / 8);
  std::string cut;
  if (step == 1) {
    const size_t begin = offsets[static_cast<size_t>(start)];
    cut = text.substr(begin, offsets[static_cast<size_t>(start + n)] - begin);
  } else {
    for (int64_t k = 0; k < n; ++k) {
      const size_t at = static_cast<size_t>(start + k * step);
      cut.append(text, offsets[at], offsets[at + 1] - offsets[at]);
    }
  }
  return runtime.text(std::move(cut), value.is_markup());
}

}  // namespace

Value attribute_of(Runtime& runtime, const Value& value, const std::string& name) {
  Value out;
  const bool is_private = name.starts_with('_');
  if (!is_private && get_attribute(runtime, value, name, out)) return out;
  if (is_private && value.is_undefined() && !is_hidden(name)) runtime.fail_undefined(value);
  const bool is_absent = value.is_undefined() && !every_object_has(name);
  if (is_hidden(name) && !is_absent) return hidden(runtime, value, name);
  if (value.is_undefined()) runtime.fail_undefined(value);
  const Value key = runtime.text(name);
  if (get_item(runtime, value, key, out)) return out;
  return runtime.attribute_missing(value, key);
}

Value item_of(Runtime& runtime, const Value& value, const Value& key) {
  Value out;
  if (get_item(runtime, value, key, out)) return out;
  if (key.is_text()) {
    if (is_hidden(key.text())) return hidden(runtime, value, key.text());
    if (!key.text().starts_with('_') && get_attribute(runtime, value, key.text(), out)) return out;
  }
  return runtime.attribute_missing(value, key);
}

Value slice_of(Runtime& runtime, const Value& value, const SliceBounds& bounds) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (value.is_text()) return slice_text(runtime, value, bounds);
  if (const auto* sequence = value.as<Sequence>()) {
    const auto size = static_cast<int64_t>(sequence->items.size());
    const auto [start, step, n] = resolve(runtime, bounds, size);
    std::vector<Value> items;
    for (int64_t k = 0; k < n; ++k) {
      items.push_back(sequence->items[static_cast<size_t>(start + k * step)]);
    }
    const bool is_list = sequence->is_list();
    return runtime.list(std::move(items), is_list ? SequenceKind::list : SequenceKind::tuple);
  }
  if (const auto* range = value.as<Range>()) {
    const auto [start, step, n] = resolve(runtime, bounds, range->length());
    auto* cut = runtime.make<Range>();
    cut->start = range->start + start * range->step;
    if (__builtin_mul_overflow(range->step, step, &cut->step)) cut->step = range->step;
    cut->stop = cut->start + n * cut->step;
    return cut;
  }
  runtime.fail("'{}' object cannot be sliced", type_name(value));
}

Value reversed_text(Runtime& runtime, const Value& text) {
  return slice_text(runtime, text, {std::nullopt, std::nullopt, -1});
}

std::optional<Value> reversed_of(Runtime& runtime, const Value& value) {
  const char* type = "list_reverseiterator";
  if (value.is_undefined() || value.as<Iterator>() || !is_iterable(value)) return std::nullopt;
  const Sequence* items = to_list(runtime, value);
  return runtime.iterator(
      [items, left = items->items.size()](Value& out) mutable {
        if (left == 0) return false;
        out = items->items[--left];
        return true;
      },
      type);
}

bool Sequence::attribute(Runtime&, const std::string& name, Value& value) {
  if (kind != SequenceKind::group || items.size() != 2) return false;
  if (name != "grouper" && name != "list") return false;
  value = items[name == "grouper" ? 0 : 1];
  return true;
}

bool Namespace::attribute(Runtime&, const std::string& name, Value& value) {
  const Value* found = attributes->find(name);
  if (found != nullptr) value = *found;
  return found != nullptr;
}

bool Range::attribute(Runtime&, const std::string& name, Value& value) {
  if (name != "start" && name != "stop" && name != "step") return false;
  value = name == "start" ? start : name == "stop" ? stop : step;
  return true;
}

}  // namespace octet::jinja
