// A function on a thread of its own that stops wherever it calls pause(), until it is let go on: a
// loop that calls out, turned into one that is called.
//
// One of the two threads works at a time, the other waits, so that they share data without locks.
#pragma once

#include <functional>
#include <memory>

namespace octet {

class PausedThread {
 public:
  // Runs `body` to its first pause or to its end, and throws what it throws.
  explicit PausedThread(std::function<void(PausedThread&)> body);
  // Unwinds the body from where it pauses.
  ~PausedThread();
  PausedThread(const PausedThread&) = delete;
  PausedThread& operator=(const PausedThread&) = delete;

  // Of the owner, who waits meanwhile. An error of the body ends it; each later call throws it.
  bool go_on();  // to the next pause; false: to the end, or it was there already
  // Runs `work` on the thread, where it pauses; nothing at the end. Throws what `work` throws.
  void at_pause(const std::function<void()>& work);

  // Of the body.
  void pause();

 private:
  struct State;
  void wait_for_body();

  std::unique_ptr<State> state_;
};

}  // namespace octet
