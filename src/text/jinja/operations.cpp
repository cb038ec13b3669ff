#include "text/jinja/operations.h"

#include <cmath>
#include <cstring>

#include "text/jinja/characters.h"
#include "text/jinja/print.h"

namespace octet::jinja {

const char* type_name(const Value& value) {
  static constexpr const char* kKinds[] = {"Undefined", "NoneType", "bool", "int", "float", "str"};
  static constexpr const char* kTypes[] = {
      "list",      "tuple",       "dict",       "Namespace", "range",
      "dict_keys", "dict_values", "dict_items", "generator", "builtin_function_or_method",
      "Macro",     "LoopContext"};
  if (value.is_markup()) return "Markup";
  if (const Object* object = value.object()) return kTypes[static_cast<size_t>(object->type)];
  return kKinds[static_cast<size_t>(value.kind())];
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
      return value.n_bytes() > 0;
    case Kind::object:
      return length_of(runtime, value).value_or(1) != 0;
    default:
      return value.integral() != 0;
  }
}

std::optional<int64_t> length_of(Runtime& runtime, const Value& value) {
  const auto size = [](const auto& items) { return static_cast<int64_t>(items.size()); };
  if (value.is_undefined()) return 0;
  if (value.is_text()) return count_characters(runtime.read(value));
  if (const auto* sequence = value.as<Sequence>()) return size(sequence->items);
  if (const auto* dict = value.as<Dict>()) return size(dict->entries);
  if (const auto* view = value.as<DictView>()) return size(view->dict->entries);
  if (const auto* range = value.as<Range>()) return range->length();
  return std::nullopt;
}

bool is_iterable(const Value& value) {
  const Object* object = value.object();
  return value.is_undefined() || value.is_text() ||
         (object != nullptr && object->type <= Type::generator && object->type != Type::space);
}

Items::Items(Runtime& runtime, const Value& value) : reserved_(runtime) {
  if (const auto* sequence = value.as<Sequence>()) {
    view_ = sequence->items;
  } else if (auto* iterator = value.as<Iterator>()) {
    view_ = std::span<const Value>(iterator->items).subspan(iterator->at);
    iterator->at = iterator->items.size();
  } else {
    if (!is_iterable(value)) runtime.fail("'{}' object is not iterable", type_name(value));
    const auto n = static_cast<size_t>(*length_of(runtime, value));
    reserved_.add(n * sizeof(Value));
    own_.reserve(n);
    fill(runtime, value);
    view_ = own_;
  }
  runtime.charge(view_.size() / 4);
}

void Items::fill(Runtime& runtime, const Value& value) {
  const auto* view = value.as<DictView>();
  const Dict* dict = view != nullptr ? view->dict : value.as<Dict>();
  if (value.is_text()) {
    runtime.charge_characters(value.n_bytes());
    for_each_character(runtime.read(value), [&](std::string_view character, int32_t) {
      own_.push_back(runtime.text(std::string(character)));
    });
  } else if (const auto* range = value.as<Range>()) {
    for (int64_t i = 0; i < range->length(); ++i) own_.push_back(range->start + i * range->step);
  } else if (dict != nullptr) {
    const Type type = view != nullptr ? view->type : Type::keys;
    for (const auto& [key, held] : dict->entries) {
      own_.push_back(type == Type::keys     ? key
                     : type == Type::values ? held
                                            : runtime.tuple({key, held}));
    }
  }
}

std::string hash_key(Runtime& runtime, const Value& value) {
  const Runtime::Depth depth(runtime);
  runtime.charge(2);
  if (value.is_undefined()) return "u";
  if (value.is_none()) return "n";
  if (value.is_text()) return "s" + runtime.read(value);
  if (value.is_integral()) return "i" + std::to_string(value.integral());
  if (value.is(Kind::real)) {
    const double real = value.real();
    if (real != std::floor(real) || std::fabs(real) >= 0x1p63) return "f" + float_repr(real);
    return "i" + std::to_string(static_cast<int64_t>(real));
  }
  const Type type = value.object()->type;
  if (type == Type::tuple) {
    Builder key(runtime);
    key.append("t");
    for (const Value& item : value.as<Sequence>()->items) {
      const std::string part = hash_key(runtime, item);
      key.append(std::to_string(part.size()) + ":" + part);
    }
    return key.take_bytes();
  }
  if (is_iterable(value) && type != Type::generator) {
    runtime.fail("unhashable type: '{}'", type_name(value));
  }
  return fmt::format("o{}", static_cast<const void*>(value.object()));
}

size_t find_text(Runtime& runtime, std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const char* begin = text.data() + from;
  const void* found = memmem(begin, text.size() - from, part.data(), part.size());
  const size_t at = found == nullptr
                        ? text.size()
                        : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  runtime.charge(1 + (at - from + part.size()) / 4);
  return found == nullptr ? std::string_view::npos : at;
}

Value escaped(Runtime& runtime, const Value& value) {
  static constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  if (value.is_markup()) return value;
  const Value plain = as_text(runtime, value);
  Builder out(runtime);
  runtime.charge_characters(plain.n_bytes());
  for_each_character(runtime.read(plain), [&](std::string_view character, int32_t) {
    for (const auto& [from, to] : kEscapes) {
      if (character == from) character = to;
    }
    out.append(character);
  });
  return out.take(true);
}

}  // namespace octet::jinja
