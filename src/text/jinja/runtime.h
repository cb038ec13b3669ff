// Needs of every operation of a template: the budget of steps and memory, the making and reading of
// values, and the error that names the line.
//
// Budget: a step is 1 to 25 ns of one core. A node that is evaluated takes a few; text is read and
// made through the Runtime alone, which charges by its bytes; what looks at a text character by
// character charges a step for each byte.
//
// Errors: Error{bad_data}, "[template] line N: WHAT". Bounds are errors as well; BudgetExceeded
// where time is the bound.
#pragma once

#include <ctime>
#include <string_view>

#include "base/error.h"
#include "base/input_limits.h"
#include "text/jinja/value.h"

namespace octet::jinja {

using Limits = TemplateLimits;

struct RenderOptions {
  std::tm clock{};  // what strftime_now says
  Limits limits = input_limits().templates;
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

// A rendering took more than its steps: the template is at fault, whatever it renders.
class BudgetExceeded : public Error {
 public:
  using Error::Error;
};

class Runtime {
 public:
  explicit Runtime(const RenderOptions& options) : limits_(options.limits), clock_(options.clock) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  template <typename... Parts>
  [[noreturn]] void fail(fmt::format_string<Parts...> format, Parts&&... parts) const {
    fail_with(fmt::format(format, std::forward<Parts>(parts)...));
  }
  [[noreturn]] void fail_with(const std::string& what) const;
  void check_defined(const Value& value) const;  // throws why it is undefined
  // "WHO expected WHAT, got ...", or why the value is undefined.
  [[noreturn]] void fail_type(std::string_view who, const char* what, const Value& got) const;

  void charge(uint64_t n_steps) {
    steps_ += n_steps;
    if (steps_ > limits_.max_steps) fail_steps();
  }
  void charge_bytes(uint64_t n) { charge(n / 16); }  // compared or copied
  const std::string& read(const Value& text) {
    charge_bytes(text.n_bytes());
    return text.text();
  }

  // Before text of this many bytes is made.
  void reserve_text(uint64_t n_bytes);
  // Before a container of this many values is made, which lives until the end.
  void reserve_values(uint64_t n_values);

  Value text(std::string bytes, bool is_markup = false);
  Value undefined(std::string why) const {
    return Undefined{std::make_shared<const std::string>(std::move(why))};
  }
  Sequence* list(std::vector<Value> items, Type type = Type::list);
  Value tuple(std::vector<Value> items) { return list(std::move(items), Type::tuple); }
  Value generator(std::vector<Value> items) { return list(std::move(items), Type::generator); }

  template <typename T, typename... Parts>
  T* make(Parts&&... parts) {
    constexpr size_t kBytes = sizeof(T);
    reserve_values(kBytes / sizeof(Value) + 1);
    objects_.push_back(std::make_unique<T>(std::forward<Parts>(parts)...));
    return static_cast<T*>(objects_.back().get());
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

  // Memory that is counted for a while.
  class Reserved {
   public:
    explicit Reserved(Runtime& runtime) : runtime_(runtime) {}
    ~Reserved() { release(); }
    Reserved(const Reserved&) = delete;
    Reserved& operator=(const Reserved&) = delete;
    void add(uint64_t n_bytes) {
      runtime_.reserve(n_bytes);
      n_bytes_ += n_bytes;
    }
    void release() { runtime_.used_ -= std::exchange(n_bytes_, 0); }

   private:
    Runtime& runtime_;
    size_t n_bytes_ = 0;
  };

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_depth();
  void reserve(uint64_t n_bytes);

  const Limits limits_;
  const std::tm clock_;
  size_t used_ = 0;  // before objects_, which count it down
  std::vector<std::unique_ptr<Object>> objects_;
  uint64_t steps_ = 0;
  int depth_ = 0;
};

// Text in the making: what is appended is charged for, and bounded before it is there.
class Builder {
 public:
  explicit Builder(Runtime& runtime) : runtime_(runtime), reserved_(runtime) {}

  void append(std::string_view bytes) {
    runtime_.reserve_text(bytes_.size() + bytes.size());
    reserved_.add(bytes.size());
    runtime_.charge_bytes(bytes.size());
    bytes_ += bytes;
  }
  Runtime& runtime() { return runtime_; }
  const std::string& bytes() const { return bytes_; }
  std::string take_bytes() { return std::move(bytes_); }
  Value take(bool is_markup = false) {
    reserved_.release();
    return runtime_.text(std::move(bytes_), is_markup);
  }

 private:
  Runtime& runtime_;
  Runtime::Reserved reserved_;
  std::string bytes_;
};

}  // namespace octet::jinja
