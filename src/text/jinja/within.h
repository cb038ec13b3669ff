// Guards of the Evaluator: they put back what they changed, exceptions or not.
#pragma once

#include "text/jinja/evaluator.h"

namespace octet::jinja {

class Evaluator::Within {
 public:
  Within(Evaluator& evaluator, ScopePtr scope)
      : evaluator_(evaluator), before_(std::exchange(evaluator.scope_, std::move(scope))) {}
  ~Within() { evaluator_.scope_ = std::move(before_); }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  Evaluator& evaluator_;
  ScopePtr before_;
};

// What is written goes to text().
class Evaluator::Captured {
 public:
  explicit Captured(Evaluator& evaluator)
      : evaluator_(evaluator), before_(std::exchange(evaluator.out_, &text_)) {}
  ~Captured() { evaluator_.out_ = before_; }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  Value take() { return evaluator_.runtime_.text(std::move(text_)); }

 private:
  Evaluator& evaluator_;
  std::string text_;
  std::string* before_;
};

}  // namespace octet::jinja
