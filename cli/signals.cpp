#include "cli/signals.h"

#include <csignal>

namespace octet {
namespace {

std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may touch it");

extern "C" void note_signal(int signal) {
  stop_signal.store(signal);
}

}  // namespace

const std::atomic<int>& catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  return stop_signal;
}

}  // namespace octet
