#include "cli/signals.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/temporary_file.h"

namespace octet {
namespace {

std::atomic<int> wish = 0;
std::atomic<bool> is_deferred = false, tells_wish = false, is_terminal = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a handler may touch them");

const char* message_of(int signal) {
  switch (signal) {
    case SIGINT:
      return "octet: interrupted (SIGINT)\n";
    case SIGHUP:
      return "octet: the terminal has gone (SIGHUP)\n";
    default:
      return "octet: asked to end (SIGTERM)\n";
  }
}

const char* answer_of(int signal) {
  switch (signal) {
    case SIGINT:
      return "octet: SIGINT: saving and ending after this step; a second one ends at once\n";
    case SIGHUP:
      return "octet: SIGHUP: saving and ending after this step; a second one ends at once\n";
    default:
      return "octet: SIGTERM: saving and ending after this step; a second one ends at once\n";
  }
}

// Writes as a handler may: nothing where nobody reads.
void say(const char* message) {
  pollfd asked{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&asked, 1, 0) <= 0) return;
  if (::write(STDERR_FILENO, message, std::strlen(message)) < 0) errno = 0;
}

// Calls only what a handler may call.
extern "C" void on_stop_signal(int signal) {
  const int error = errno;
  int none = 0;
  if (is_deferred.load() && wish.compare_exchange_strong(none, signal)) {
    if (tells_wish.load() && is_terminal.load()) say("\r\x1b[K");  // over the bar
    if (tells_wish.load()) say(answer_of(signal));
    errno = error;
    return;
  }
  remove_unfinished_files();
  say(message_of(signal));
  ::_exit(128 + signal);
}

}  // namespace

void install_signals() {
  is_terminal = ::isatty(STDERR_FILENO) == 1;
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&action.sa_mask, signal);
  // Without SA_RESTART: a write that waits for a reader ends, and then asks whether to go on.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

const std::atomic<int>& stop_wish() {
  return wish;
}

void StopDeferral::begin(Tells tells) {
  tells_wish = tells == Tells::yes;
  is_deferred = true;
}

StopDeferral::~StopDeferral() {
  is_deferred = false;
}

}  // namespace octet
