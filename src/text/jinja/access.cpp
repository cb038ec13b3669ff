// value.name, value[key], value[a:b:c].
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace octet::jinja {
namespace {

Value unsafe(Runtime& runtime, const Value& value, const Value& name) {
  return runtime.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe",
                                       runtime.read(name), type_name(value)));
}

// What getattr gives in the sandbox. False where Python would raise AttributeError.
bool get_attribute(Runtime& runtime, const Value& value, const Value& key, Value& out) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  const std::string& name = runtime.read(key);
  if (name.starts_with("__") || is_mutator(value, name)) {
    out = unsafe(runtime, value, key);
    return true;
  }
  if (name.starts_with('_')) return false;
  if (value.object() != nullptr && value.object()->attribute(runtime, name, out)) return true;
  const Builtin* method = find_method(value, name);
  if (method != nullptr) out = runtime.make<Function>(method, value);
  return method != nullptr;
}

// The item, or false where Python raises TypeError or LookupError.
bool get_item(Runtime& runtime, const Value& value, const Value& key, Value& out) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (const auto* dict = value.as<Dict>()) {
    const auto* list = key.as<Sequence>();
    if (key.as<Dict>() != nullptr || (list != nullptr && list->type == Type::list)) return false;
    const Value* found = dict->find(runtime, key);
    if (found != nullptr) out = *found;
    return found != nullptr;
  }
  if (!key.is_integral() || value.as<DictView>() != nullptr) return false;
  const auto n = length_of(runtime, value);
  if (!n) return false;
  const int64_t i = key.integral() < 0 ? key.integral() + *n : key.integral();
  if (i < 0 || i >= *n) return false;
  if (const auto* sequence = value.as<Sequence>()) {
    out = sequence->items[static_cast<size_t>(i)];
  } else if (const auto* range = value.as<Range>()) {
    out = range->start + i * range->step;
  } else {
    const std::string& text = runtime.read(value);
    const size_t at = nth_character(text, i);
    out = runtime.text(text.substr(at, decode_utf8(text, at).length), value.is_markup());
  }
  return true;
}

Value missing(Runtime& runtime, const Value& of, const Value& key) {
  const std::string owner = of.is_none() ? "None" : fmt::format("{} object", type_name(of));
  if (!key.is_text()) return runtime.undefined(fmt::format("{} has no such element", owner));
  return runtime.undefined(fmt::format("'{}' has no attribute '{}'", owner, runtime.read(key)));
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
    return std::clamp(*bound < 0 ? *bound + length : *bound, low, high);
  };
  const int64_t start = clamp(bounds.start, step > 0 ? low : high);
  const int64_t stop = clamp(bounds.stop, step > 0 ? high : low);
  const int64_t span = step > 0 ? stop - start : start - stop;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t n = span > 0 ? (static_cast<uint64_t>(span) - 1) / stride + 1 : 0;
  return {start, step, static_cast<int64_t>(n)};
}

Value slice_text(Runtime& runtime, const Value& value, const SliceBounds& bounds) {
  const int64_t length = *length_of(runtime, value);
  const auto [start, step, n] = resolve(runtime, bounds, length);
  const std::string& text = runtime.read(value);
  std::string cut;
  if (step == 1) {
    const size_t begin = nth_character(text, start);
    const std::string_view rest = std::string_view(text).substr(begin);
    cut = rest.substr(0, nth_character(rest, n));
  } else {
    Runtime::Reserved reserved(runtime);
    reserved.add((static_cast<size_t>(length) + 1) * sizeof(std::string_view));
    runtime.charge_characters(text.size());
    std::vector<std::string_view> all;
    for_each_character(text, [&](std::string_view one, int32_t) { all.push_back(one); });
    for (int64_t k = 0; k < n; ++k) cut += all[static_cast<size_t>(start + k * step)];
  }
  return runtime.text(std::move(cut), value.is_markup());
}

}  // namespace

Value attribute_of(Runtime& runtime, const Value& value, const Value& name) {
  Value out;
  if (get_attribute(runtime, value, name, out) || get_item(runtime, value, name, out)) return out;
  return missing(runtime, value, name);
}

Value item_of(Runtime& runtime, const Value& value, const Value& key) {
  Value out;
  if (get_item(runtime, value, key, out)) return out;
  if (key.is_text() && get_attribute(runtime, value, key, out)) return out;
  return missing(runtime, value, key);
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
    return runtime.list(std::move(items), sequence->type);
  }
  if (const auto* range = value.as<Range>()) {
    const auto [start, step, n] = resolve(runtime, bounds, range->length());
    int64_t stride = 0;
    if (__builtin_mul_overflow(range->step, step, &stride)) stride = range->step;
    const int64_t first = range->start + start * range->step;
    return runtime.make<Range>(first, first + n * stride, stride);
  }
  runtime.fail("'{}' object cannot be sliced", type_name(value));
}

bool Namespace::attribute(Runtime& runtime, const std::string& name, Value& value) {
  const Value* found = attributes->find(runtime, runtime.text(name));
  if (found != nullptr) value = *found;
  return found != nullptr;
}

}  // namespace octet::jinja
