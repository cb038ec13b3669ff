// The values of a template: Python's, as far as templates use them.
//
// Text is counted by reference, so that what a loop builds up and drops does not stay in memory.
// Everything else that is not a number belongs to the Runtime that made it and lives until the end
// of the rendering: namespaces may hold themselves, so counting could not free them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace octet::jinja {

class Runtime;
struct Object;
struct Arguments;

// Text counts its bytes against `used` while it lives; null for the constants of a template.
struct Text {
  Text(std::string text, bool markup, size_t* counter)
      : bytes(std::move(text)), is_markup(markup), used(counter) {
    if (used != nullptr) *used += bytes.size() + kOverhead;
  }
  ~Text() {
    if (used != nullptr) *used -= bytes.size() + kOverhead;
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  static constexpr size_t kOverhead = 64;
  std::string bytes;  // UTF-8
  bool is_markup;     // marked `safe`: what is joined to it is escaped
  size_t* used;
};
using TextRef = std::shared_ptr<const Text>;

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
  bool boolean() const { return std::get<bool>(held_); }
  double real() const { return std::get<double>(held_); }
  const std::string& text() const { return std::get<TextRef>(held_)->bytes; }
  bool is_markup() const { return is_text() && std::get<TextRef>(held_)->is_markup; }
  Object* object() const { return is(Kind::object) ? std::get<Object*>(held_) : nullptr; }
  // True is 1, as in Python.
  int64_t integral() const {
    return is(Kind::boolean) ? int64_t{boolean()} : std::get<int64_t>(held_);
  }
  double number() const { return is(Kind::real) ? real() : static_cast<double>(integral()); }

  template <typename T>
  T* as() const {
    return dynamic_cast<T*>(object());
  }

 private:
  std::variant<Undefined, None, bool, int64_t, double, TextRef, Object*> held_;
};

struct Object {
  virtual ~Object() = default;
  virtual const char* type_name() const = 0;
  // Null where the object cannot be called.
  virtual bool is_callable() const { return false; }
  virtual Value call(Runtime& runtime, Arguments& arguments);
  // What str() gives; empty where it changes from run to run (an address).
  virtual std::string printed() const { return {}; }
  // An attribute that is no method of a built-in type; false where there is none.
  virtual bool attribute(Runtime&, const std::string&, Value&) { return false; }
};

enum class SequenceKind { list, tuple, group };  // group: a tuple (grouper, list) with names

struct Sequence : Object {
  const char* type_name() const override { return kind == SequenceKind::list ? "list" : "tuple"; }
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;
  bool is_list() const { return kind == SequenceKind::list; }
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
};

// Keys in the order of their first insertion.
struct Dict : Object {
  const char* type_name() const override { return "dict"; }
  const Value* find(Runtime& runtime, const Value& key) const;
  const Value* find(std::string_view text_key) const;
  void set(Runtime& runtime, const Value& key, Value value);

  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // by hash_key
};

struct Namespace : Object {
  const char* type_name() const override { return "Namespace"; }
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;
  Dict* attributes = nullptr;
};

struct Range : Object {
  const char* type_name() const override { return "range"; }
  bool attribute(Runtime& runtime, const std::string& name, Value& value) override;
  int64_t length() const;
  int64_t start = 0, stop = 0, step = 1;
};

enum class ViewKind { keys, values, items };

struct DictView : Object {
  const char* type_name() const override;
  ViewKind kind = ViewKind::keys;
  const Dict* dict = nullptr;
};

// Gives the next value, or false at the end.
using Next = std::function<bool(Value&)>;

// What can be walked through once: the result of map, select, items, reverse ...
struct Iterator : Object {
  const char* type_name() const override { return type; }
  const char* type = "generator";
  Next next;
};

using Callable = std::function<Value(Runtime&, Arguments&)>;

struct Function : Object {
  const char* type_name() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override { return body(runtime, arguments); }
  std::string name;
  Callable body;
};

}  // namespace octet::jinja
