#include "text/jinja/operations.h"

#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/methods.h"
#include "text/jinja/print.h"
#include "text/unicode.h"

namespace octet::jinja {

Value Object::call(Runtime& runtime, Arguments&) {
  runtime.fail("'{}' object is not callable", type_name());
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return value.is_markup() ? "Markup" : "str";
    case Kind::object:
      return value.object()->type_name();
  }
  return "";
}

const char* DictView::type_name() const {
  return kind == ViewKind::keys     ? "dict_keys"
         : kind == ViewKind::values ? "dict_values"
                                    : "dict_items";
}

const Value* Dict::find(Runtime& runtime, const Value& key) const {
  const auto it = index.find(hash_key(runtime, key));
  return it == index.end() ? nullptr : &entries[it->second].second;
}

const Value* Dict::find(std::string_view text_key) const {
  std::string key = "s";
  key += text_key;
  const auto it = index.find(key);
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

int64_t Range::length() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

bool is_true(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::real:
      return value.real() != 0;
    case Kind::text:
      return !value.text().empty();
    case Kind::object:
      return length_of(runtime, value).value_or(1) != 0;
    default:
      return value.integral() != 0;
  }
}

std::optional<int64_t> length_of(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) {
    runtime.charge(value.text().size() / 64);
    return count_characters(value.text());
  }
  const auto size = [](const auto& items) { return static_cast<int64_t>(items.size()); };
  if (const auto* sequence = value.as<Sequence>()) return size(sequence->items);
  if (const auto* dict = value.as<Dict>()) return size(dict->entries);
  if (const auto* view = value.as<DictView>()) return size(view->dict->entries);
  if (const auto* range = value.as<Range>()) return range->length();
  return std::nullopt;
}

int64_t length(Runtime& runtime, const Value& value) {
  const auto found = length_of(runtime, value);
  if (!found) runtime.fail("object of type '{}' has no len()", type_name(value));
  return *found;
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.as<Sequence>() || value.as<Dict>() ||
         value.as<DictView>() || value.as<Range>() || value.as<Iterator>();
}

namespace {

Next iterate_text(Runtime& runtime, const Value& text) {
  return [&runtime, text, at = size_t{0}](Value& out) mutable {
    if (at >= text.text().size()) return false;
    const size_t length = decode_utf8(text.text(), at).length;
    out = runtime.text(text.text().substr(at, length));
    at += length;
    return true;
  };
}

Next iterate_entries(Runtime& runtime, const Dict* dict, ViewKind kind) {
  return [&runtime, dict, kind, i = size_t{0}](Value& out) mutable {
    if (i >= dict->entries.size()) return false;
    const auto& [key, value] = dict->entries[i++];
    runtime.charge(1);
    out = kind == ViewKind::keys     ? key
          : kind == ViewKind::values ? value
                                     : runtime.tuple({key, value});
    return true;
  };
}

}  // namespace

Next iterate(Runtime& runtime, const Value& value) {
  if (value.is_text()) return iterate_text(runtime, value);
  if (const auto* sequence = value.as<Sequence>()) {
    return [&runtime, sequence, i = size_t{0}](Value& out) mutable {
      if (i >= sequence->items.size()) return false;
      runtime.charge(1);
      out = sequence->items[i++];
      return true;
    };
  }
  if (const auto* dict = value.as<Dict>()) return iterate_entries(runtime, dict, ViewKind::keys);
  if (const auto* view = value.as<DictView>()) {
    return iterate_entries(runtime, view->dict, view->kind);
  }
  if (const auto* range = value.as<Range>()) {
    return [&runtime, range, i = int64_t{0}](Value& out) mutable {
      if (i >= range->length()) return false;
      runtime.charge(1);
      out = range->start + range->step * i++;
      return true;
    };
  }
  if (auto* iterator = value.as<Iterator>()) {
    return [&runtime, iterator](Value& out) {
      const Runtime::Depth depth(runtime);
      runtime.charge(1);
      return iterator->next(out);
    };
  }
  if (!value.is_undefined()) runtime.fail("'{}' object is not iterable", type_name(value));
  return [](Value&) { return false; };
}

Sequence* to_list(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  const Next next = iterate(runtime, value);
  for (Value item; next(item);) {
    items.push_back(item);
    if (items.size() * sizeof(Value) > runtime.limits().max_memory) {
      runtime.reserve_values(items.size());  // throws
    }
  }
  return runtime.list(std::move(items));
}

std::string hash_key(Runtime& runtime, const Value& value) {
  const Runtime::Depth depth(runtime);
  switch (value.kind()) {
    case Kind::undefined:
      return "u";
    case Kind::none:
      return "n";
    case Kind::text:
      runtime.charge(value.text().size() / 16);
      return "s" + value.text();
    case Kind::real: {
      const double real = value.real();
      if (real != std::floor(real) || std::fabs(real) >= 0x1p63) return "f" + float_repr(real);
      return "i" + std::to_string(static_cast<int64_t>(real));
    }
    case Kind::object:
      break;
    default:
      return "i" + std::to_string(value.integral());
  }
  if (const auto* sequence = value.as<Sequence>(); sequence && !sequence->is_list()) {
    std::string key = "t";
    for (const Value& item : sequence->items) {
      const std::string part = hash_key(runtime, item);
      key += std::to_string(part.size()) + ":" + part;
      runtime.reserve_text(key.size());
    }
    return key;
  }
  if (value.as<Sequence>() || value.as<Dict>() || value.as<Range>() || value.as<DictView>()) {
    runtime.fail("unhashable type: '{}'", type_name(value));
  }
  return fmt::format("o{}", static_cast<const void*>(value.object()));
}

}  // namespace octet::jinja
