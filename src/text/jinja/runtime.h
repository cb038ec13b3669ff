// What every operation of a template needs: the budget of steps and memory, the making of values,
// and the error that names the line.
//
// Errors: Error{bad_data}, "[template] line N: WHAT". Bounds are errors as well.
#pragma once

#include <ctime>

#include "base/error.h"
#include "text/jinja/value.h"

namespace octet::jinja {

struct Limits {
  size_t max_source_bytes = size_t{4} << 20;
  size_t max_text_bytes = size_t{16} << 20;  // one text, and what is rendered
  size_t max_memory = size_t{256} << 20;     // all that is alive, roughly
  uint64_t max_steps = 200'000'000;          // about one a node evaluated, or 16 bytes copied
  int max_depth = 600;                       // nested evaluations, macros that call themselves
};

// The message of the template's own raise_exception.
class TemplateRefusal : public Error {
 public:
  explicit TemplateRefusal(std::string message)
      : Error(ErrorCode::bad_data, "[template] the template refuses: {}", message),
        message_(std::move(message)) {}
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Runtime {
 public:
  Runtime(const Limits& limits, const std::tm& clock) : limits_(limits), clock_(clock) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  template <typename... Parts>
  [[noreturn]] void fail(fmt::format_string<Parts...> format, Parts&&... parts) const {
    fail_with(fmt::format(format, std::forward<Parts>(parts)...));
  }
  [[noreturn]] void fail_with(const std::string& what) const;
  // The error of using an undefined value.
  [[noreturn]] void fail_undefined(const Value& value) const;

  void charge(uint64_t n_steps) {
    steps_ += n_steps;
    if (steps_ > limits_.max_steps) fail_steps();
  }
  // Before text of this many bytes is made; charges for them.
  void reserve_text(uint64_t n_bytes);
  // Before a container of this many values is made.
  void reserve_values(uint64_t n_values);

  Value text(std::string bytes, bool is_markup = false);
  Value undefined(std::string why);
  Value attribute_missing(const Value& of, const Value& name);
  Sequence* list(std::vector<Value> items = {}, SequenceKind kind = SequenceKind::list);
  Value tuple(std::vector<Value> items) { return list(std::move(items), SequenceKind::tuple); }
  Dict* dict() { return make<Dict>(); }
  Value iterator(Next next, const char* type = "generator");
  Value function(std::string name, Callable body);

  template <typename T, typename... Parts>
  T* make(Parts&&... parts) {
    const size_t n_bytes = sizeof(T);
    reserve_values(n_bytes / sizeof(Value) + 1);
    auto object = std::make_unique<T>(std::forward<Parts>(parts)...);
    T* raw = object.get();
    objects_.push_back(std::move(object));
    return raw;
  }

  const Limits& limits() const { return limits_; }
  const std::tm& clock() const { return clock_; }
  int line = 0;  // of the template, where evaluation stands

  // Guards recursion: `const Runtime::Depth depth(runtime);`
  class Depth {
   public:
    explicit Depth(Runtime& runtime) : runtime_(runtime) {
      if (++runtime_.depth_ > runtime_.limits_.max_depth) runtime_.fail_depth();
    }
    ~Depth() { --runtime_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_depth();

  const Limits limits_;
  const std::tm clock_;
  size_t used_ = 0;  // before objects_, which count it down
  std::vector<std::unique_ptr<Object>> objects_;
  uint64_t steps_ = 0;
  int depth_ = 0;
};

}  // namespace octet::jinja
