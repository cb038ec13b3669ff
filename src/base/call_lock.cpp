#include "base/call_lock.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace octet {
namespace {

// A thread that waits lets Ctrl-C through this often.
constexpr auto kLongestWait = std::chrono::milliseconds(50);

}  // namespace

bool is_forked_from(pid_t process) {
  return process != ::getpid();
}

struct CallLock::State {
  std::timed_mutex mutex;
  std::atomic<std::thread::id> owner;  // the thread in a call; none: no call
  const pid_t process = ::getpid();
};

CallLock::CallLock() : state_(std::make_unique<State>().release()) {}

CallLock::~CallLock() {
  State* state = state_.load();
  if (!is_forked_from(state->process)) delete state;  // else its mutex may be held for ever
}

CallLock::Held::~Held() {
  state_.owner = std::thread::id();
  state_.mutex.unlock();
}

CallLock::State& CallLock::of_this_process(std::string_view what) {
  State* state = state_.load();
  if (!is_forked_from(state->process)) return *state;
  if (state->owner.load() != std::thread::id()) {
    throw Error(ErrorCode::invalid_argument,
                "[{}] expected a process that forks between calls, got a child of one that forked "
                "during a call: make it anew here",
                what);
  }
  auto anew = std::make_unique<State>();
  if (state_.compare_exchange_strong(state, anew.get())) return *anew.release();
  return *state;  // another thread was first
}

CallLock::Held CallLock::enter(std::string_view what, const std::function<void()>& between) {
  State& state = of_this_process(what);
  if (state.owner.load() == std::this_thread::get_id()) {
    throw Error(ErrorCode::invalid_argument,
                "[{}] expected no call within another one, got one from its callback", what);
  }
  while (!state.mutex.try_lock_for(kLongestWait)) {
    if (between) between();
  }
  state.owner = std::this_thread::get_id();
  return Held(state);
}

}  // namespace octet
