// Operations on values: what they are, hold and give.
#include "text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"

namespace octet::jinja {

const char* type_name(const Value& value) {
  static constexpr const char* kNames[] = {
      "Undefined", "NoneType",    "bool",       "int",
      "float",     "str",         "list",       "tuple",
      "dict_keys", "dict_values", "dict_items", "generator",
      "range",     "dict",        "Namespace",  "builtin_function_or_method",
      "Macro",     "LoopContext"};
  if (value.is_markup()) return "Markup";
  const Object* object = value.object();
  return kNames[static_cast<size_t>(value.kind()) +
                (object ? static_cast<size_t>(object->type) : 0)];
}

const Value* Dict::find(Runtime& runtime, const Value& key) const {
  const auto it = index.find(hash_key(runtime, key));
  return it == index.end() ? nullptr : &entries[it->second].second;
}

void Dict::set(Runtime& runtime, const Value& key, Value value) {
  const auto [it, is_new] = index.try_emplace(hash_key(runtime, key), entries.size());
  if (!is_new) {
    entries[it->second].second = std::move(value);
    return;
  }
  runtime.reserve_values(6 + it->first.size() / sizeof(Value));
  entries.emplace_back(key, std::move(value));
}

bool Namespace::attribute(Runtime& runtime, const std::string& name, Value& value) {
  const Value* found = attributes->find(runtime, runtime.text(name));
  if (found) value = *found;
  return found;
}

bool is_true(Runtime& runtime, const Value& value) {
  if (value.is_integral()) return value.integral() != 0;
  if (value.is(Kind::real)) return value.real() != 0;
  if (value.is_text()) return value.n_bytes() > 0;
  return value.object() && length_of(runtime, value).value_or(1) != 0;
}

std::optional<int64_t> length_of(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return count_characters(runtime.read(value));
  const auto* sequence = value.as<Sequence>();
  if (sequence && sequence->type != Type::generator) {
    return static_cast<int64_t>(sequence->items.size());
  }
  if (const auto* range = value.as<Range>()) return range->length;
  const auto* dict = value.as<Dict>();
  return dict ? std::optional(static_cast<int64_t>(dict->entries.size())) : std::nullopt;
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.as<Sequence>() || value.as<Range>() ||
         value.as<Dict>();
}

int64_t integer_of(Runtime& runtime, const Value& value, std::string_view who) {
  if (!value.is_integral()) runtime.fail_type(who, "an integer", value);
  return value.integral();
}

Items::Items(Runtime& runtime, const Value& value) : reserved_(runtime) {
  if (!is_iterable(value)) runtime.fail("'{}' object is not iterable", type_name(value));
  auto* sequence = value.as<Sequence>();
  if (sequence) {
    view_ = std::span(sequence->items).subspan(sequence->at);
    if (sequence->type == Type::generator) sequence->at = sequence->items.size();
  } else {
    const auto n = static_cast<size_t>(*length_of(runtime, value));
    reserved_.add(n * sizeof(Value));
    own_.reserve(n);
    if (value.is_text()) {
      runtime.charge(value.n_bytes());
      for_each_character(runtime.read(value), [&](std::string_view character, int32_t) {
        own_.push_back(runtime.text(std::string(character)));
      });
    } else if (const auto* range = value.as<Range>()) {
      for (int64_t i = 0; i < range->length; ++i) own_.push_back(range->start + i * range->step);
    } else if (const auto* dict = value.as<Dict>()) {
      for (const auto& entry : dict->entries) own_.push_back(entry.first);
    }
    view_ = own_;
  }
  runtime.charge(view_.size() / 4);
}

std::vector<Value> pairs_of(Runtime& runtime, const Dict& dict) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.entries) pairs.push_back(runtime.tuple({key, value}));
  return pairs;
}

std::string hash_key(Runtime& runtime, const Value& value) {
  runtime.charge(2);
  if (value.is_undefined()) return "u";
  if (value.is_none()) return "n";
  if (value.is_text()) return "s" + runtime.read(value);
  if (value.is_integral()) return "i" + std::to_string(value.integral());
  if (value.is(Kind::real)) {  // equal numbers are one key
    const double real = value.real();
    if (real != std::floor(real) || std::fabs(real) >= 0x1p63) return "f" + float_repr(real);
    return "i" + std::to_string(static_cast<int64_t>(real));
  }
  runtime.fail("a {} as a key is outside the supported subset", type_name(value));
}

namespace {

// Attribute that getattr gives in the sandbox. False where Python would raise AttributeError.
bool get_attribute(Runtime& runtime, const Value& value, const Value& key, Value& out) {
  if (!key.is_text()) return false;
  const std::string& name = runtime.read(key);
  if (name.starts_with("__") || is_mutator(value, name)) {
    out = runtime.undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
    return true;
  }
  if (name.starts_with('_')) return false;
  if (value.object() && value.object()->attribute(runtime, name, out)) return true;
  const Builtin* method = find_method(value, name);
  if (method) out = runtime.make<Function>(method, value);
  return method;
}

bool has_subscripts(const Value& value) {
  const auto* sequence = value.as<Sequence>();
  return value.is_text() || value.as<Range>() || (sequence && sequence->is_list());
}

// The item, or false where Python raises TypeError or LookupError.
bool get_item(Runtime& runtime, const Value& value, const Value& key, Value& out) {
  const auto* sequence = value.as<Sequence>();
  if (const auto* dict = value.as<Dict>()) {
    const Value* found = dict->find(runtime, key);
    if (found) out = *found;
    return found;
  }
  if (!key.is_integral() || !has_subscripts(value)) return false;
  const int64_t n = *length_of(runtime, value);
  const int64_t i = key.integral() < 0 ? key.integral() + n : key.integral();
  if (i < 0 || i >= n) return false;
  if (sequence) {
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

struct SliceRange {
  int64_t start, step, n;
};

// Bounds as slice.indices() counts them.
SliceRange resolve(Runtime& runtime, const SliceBounds& bounds, int64_t length) {
  // The farthest that a step goes: a longer one reaches one item too.
  const int64_t most = std::max<int64_t>(length, 1);
  const int64_t step = std::clamp(bounds.step.value_or(1), -most, most);
  if (step == 0) runtime.fail("the step of a slice cannot be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) return fallback;
    return std::clamp(*bound < 0 ? *bound + length : *bound, low, high);
  };
  const int64_t start = clamp(bounds.start, step > 0 ? low : high);
  const int64_t stop = clamp(bounds.stop, step > 0 ? high : low);
  const int64_t span = step > 0 ? stop - start : start - stop;
  return {start, step, span > 0 ? (span - 1) / std::abs(step) + 1 : 0};
}

}  // namespace

Value member_of(Runtime& runtime, Access first, const Value& value, const Value& key) {
  runtime.check_defined(value);
  Value out;
  const bool is_found =
      first == Access::attribute
          ? get_attribute(runtime, value, key, out) || get_item(runtime, value, key, out)
          : get_item(runtime, value, key, out) || get_attribute(runtime, value, key, out);
  if (is_found) return out;
  const std::string owner = value.is_none() ? "None" : fmt::format("{} object", type_name(value));
  if (!key.is_text()) return runtime.undefined(owner + " has no such element");
  return runtime.undefined(fmt::format("'{}' has no attribute '{}'", owner, runtime.read(key)));
}

Value slice_of(Runtime& runtime, const Value& value, const SliceBounds& bounds) {
  if (!has_subscripts(value)) runtime.fail_type("a slice", "text or a list", value);
  const auto [start, step, n] = resolve(runtime, bounds, *length_of(runtime, value));
  if (value.is_text() && step == 1) {  // without a value for each character
    std::string_view text = runtime.read(value);
    text.remove_prefix(nth_character(text, start));
    const std::string cut(text.substr(0, nth_character(text, n)));
    return runtime.text(cut, value.is_markup());
  }
  if (const auto* range = value.as<Range>()) {
    return runtime.make<Range>(range->start + start * range->step, range->step * step, n);
  }
  const auto* sequence = value.as<Sequence>();
  const Items all(runtime, value);
  Builder text(runtime);
  std::vector<Value> items;
  for (int64_t k = 0; k < n; ++k) {
    const Value& item = all.view()[static_cast<size_t>(start + k * step)];
    if (sequence) {
      items.push_back(item);
    } else {
      append_text(text, item);
    }
  }
  return sequence ? runtime.list(std::move(items), sequence->type) : text.take(value.is_markup());
}

size_t find_text(Runtime& runtime, std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const char* begin = text.data() + from;
  const void* found = memmem(begin, text.size() - from, part.data(), part.size());
  const size_t at =
      found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.size();
  runtime.charge(1 + (at - from + part.size()) / 4);
  return found ? at : std::string_view::npos;
}

Value escaped(Runtime& runtime, const Value& text) {
  static constexpr std::pair<char, std::string_view> kEscapes[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
  if (text.is_markup()) return text;
  Builder out(runtime);
  runtime.charge(text.n_bytes());
  for (const char& c : runtime.read(text)) {
    std::string_view written(&c, 1);
    for (const auto& [from, to] : kEscapes) {
      if (c == from) written = to;
    }
    out.append(written);
  }
  return out.take(true);
}

}  // namespace octet::jinja
