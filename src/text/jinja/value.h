// The values of a template: Python's, as far as templates use them.
//
// Text is counted by reference, so that what a loop builds up and drops does not stay in memory.
// Everything else that is not a number belongs to the Runtime that made it and lives until the end
// of the rendering: namespaces may hold themselves, so counting could not free them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace octet::jinja {

class Runtime;
struct Builtin;
struct Object;

// Text counts its bytes against `used` while it lives; null for the constants of a template.
struct Text {
  Text(std::string text, bool markup, size_t* counter)
      : bytes(std::move(text)), is_markup(markup), used(counter) {
    if (used) *used += bytes.size() + kOverhead;
  }
  ~Text() {
    if (used) *used -= bytes.size() + kOverhead;
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  static constexpr size_t kOverhead = 64;
  const std::string bytes;  // UTF-8
  const bool is_markup;     // marked `safe`: what is joined to it is escaped
  size_t* const used;
};
using TextRef = std::shared_ptr<const Text>;
inline TextRef text_constant(std::string text) {
  return std::make_shared<const Text>(std::move(text), false, nullptr);
}

struct Undefined {
  std::shared_ptr<const std::string> why;  // the error of its first use
};
struct None {};

enum class Kind { undefined, none, boolean, integer, real, text, object };

class Value {
 public:
  Value() = default;  // undefined
  Value(Undefined undefined) : held_(std::move(undefined)) {}
  Value(None none) : held_(none) {}
  Value(bool boolean) : held_(boolean) {}
  Value(int64_t integer) : held_(integer) {}
  Value(double real) : held_(real) {}
  Value(TextRef text) : held_(std::move(text)) {}
  template <typename T>
  Value(T* object) : held_(static_cast<Object*>(object)) {}
  template <typename Other>
  requires(!std::is_pointer_v<Other>) Value(Other)
  = delete;  // no conversion is silent: int to bool

  Kind kind() const { return static_cast<Kind>(held_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_text() const { return is(Kind::text); }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_number() const { return is_integral() || is(Kind::real); }
  bool is_integral() const { return is(Kind::integer) || is(Kind::boolean); }

  const Undefined& undefined() const { return std::get<Undefined>(held_); }
  double real() const { return std::get<double>(held_); }
  // The bytes of a text are read through Runtime::read, which charges for them.
  size_t n_bytes() const { return std::get<TextRef>(held_)->bytes.size(); }
  bool is_markup() const { return is_text() && std::get<TextRef>(held_)->is_markup; }
  Object* object() const { return is(Kind::object) ? std::get<Object*>(held_) : nullptr; }
  // True is 1, as in Python.
  int64_t integral() const {
    const bool* boolean = std::get_if<bool>(&held_);
    return boolean ? int64_t{*boolean} : std::get<int64_t>(held_);
  }
  double number() const { return is(Kind::real) ? real() : static_cast<double>(integral()); }

  template <typename T>
  T* as() const;

 private:
  friend class Runtime;
  const std::string& text() const { return std::get<TextRef>(held_)->bytes; }

  std::variant<Undefined, None, bool, int64_t, double, TextRef, Object*> held_;
};

enum class Type {
  list,
  tuple,
  keys,
  values,
  items,
  generator,
  range,
  dict,
  space,
  function,
  macro,
  loop
};

struct Object {
  explicit Object(Type of) : type(of) {}
  virtual ~Object() = default;
  // An attribute that is no method of a built-in type; false where there is none.
  virtual bool attribute(Runtime&, const std::string&, Value&) { return false; }
  const Type type;
};

template <Type kType>
struct Typed : Object {
  Typed() : Object(kType) {}
  static bool holds(Type type) { return type == kType; }
};

// Ordered items. Nothing that a template does changes what a dict's view would show.
struct Sequence : Object {
  Sequence(Type of, std::vector<Value> values) : Object(of), items(std::move(values)) {}
  static bool holds(Type type) { return type <= Type::generator; }
  bool is_list() const { return type <= Type::tuple; }

  const std::vector<Value> items;
  size_t at = 0;  // of a generator: those before it have been walked through
};

struct Range : Typed<Type::range> {
  Range(int64_t first, int64_t by, int64_t n) : start(first), step(by), length(n) {}
  const int64_t start, step, length;
};

// Keys in the order of their first insertion.
struct Dict : Typed<Type::dict> {
  const Value* find(Runtime& runtime, const Value& key) const;
  void set(Runtime& runtime, const Value& key, Value value);

  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // by hash_key
};

struct Namespace : Typed<Type::space> {
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;
  Dict* attributes = nullptr;
};

struct Function : Typed<Type::function> {
  Function(const Builtin* of, Value on) : row(of), self(std::move(on)) {}
  const Builtin* row;
  Value self;  // of a method
};

template <typename T>
T* Value::as() const {
  Object* held = object();
  return held && T::holds(held->type) ? static_cast<T*>(held) : nullptr;
}

}  // namespace octet::jinja
