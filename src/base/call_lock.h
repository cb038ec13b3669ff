// One call at a time of an object that several threads share, in every process that has it.
//
// A forked child has the parent's object but none of its threads: a lock that another thread held
// at the fork is never released there, and what it guarded may be half changed. The child of a
// fork between calls takes the object over; that of a fork during a call gets an error.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string_view>

namespace octet {

// True if this process is a forked child of the one with that id.
bool is_forked_from(pid_t process);

class CallLock {
  struct State;

 public:
  CallLock();
  ~CallLock();
  CallLock(const CallLock&) = delete;
  CallLock& operator=(const CallLock&) = delete;

  class [[nodiscard]] Held {
   public:
    explicit Held(State& state) : state_(state) {}
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    State& state_;
  };

  // Waits until no other thread is in a call; `between` is called now and then meanwhile and may
  // throw. Throws Error{invalid_argument}, with `what` as its operation, for a call within a call
  // of the same thread and for an object that was in a call when its process forked.
  Held enter(std::string_view what, const std::function<void()>& between = {});

 private:
  State& of_this_process(std::string_view what);

  std::atomic<State*> state_;
};

}  // namespace octet
