#include "cli/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "cli/signals.h"

namespace octet {
namespace {

constexpr size_t kKept = 1 << 16;

struct Output {
  std::string kept;
  int lost_errno = 0;  // why results were lost
};

Output& output() {
  static Output only;
  return only;
}

bool takes_more(int descriptor, int timeout_ms) {
  pollfd asked{descriptor, POLLOUT, 0};
  return ::poll(&asked, 1, timeout_ms) > 0;
}

// 0, or the errno of what kept the rest from being written.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const bool in_haste = stop_wish().load() != 0;
    if (in_haste && !takes_more(descriptor, 0)) return EAGAIN;
    // A pipe that takes more takes at least PIPE_BUF bytes without waiting.
    const size_t n_asked = in_haste ? std::min<size_t>(bytes.size(), PIPE_BUF) : bytes.size();
    const ssize_t n = ::write(descriptor, bytes.data(), n_asked);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      takes_more(descriptor, /*timeout_ms=*/-1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

void flush() {
  Output& out = output();
  const int error = write_all(STDOUT_FILENO, out.kept);
  out.kept.clear();
  if (error != 0 && error != EPIPE) out.lost_errno = error;
}

void keep(std::string_view bytes) {
  Output& out = output();
  out.kept += bytes;
  if (out.kept.size() >= kKept) flush();
}

}  // namespace

void open_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one. Where there is no /dev, a folder keeps it from others.
    if (::open("/dev/null", O_RDWR) < 0) ::open("/", O_RDONLY | O_DIRECTORY);
  }
}

void write_out(std::string_view text) {
  keep(printable(text, Lines::many));
}

void write_data(std::string_view bytes) {
  static const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  is_terminal ? write_out(bytes) : keep(bytes);
}

void write_marked(std::string_view text) {
  static const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string shown = printable(text, Lines::many);
  keep(is_terminal ? "\x1b[32m" + shown + "\x1b[0m" : "\u27e6" + shown + "\u27e7");
}

void write_err(std::string_view text) {
  flush();  // on a terminal both are one text
  write_all(STDERR_FILENO, printable(text, Lines::many));
}

void write_message(std::string_view prefix, std::string_view text) {
  constexpr size_t kLongest = 4000, kEnd = 200;
  std::string line(prefix);
  if (text.size() <= kLongest) {
    line += printable(text);
  } else {
    line += printable(text.substr(0, kLongest - kEnd));
    line += fmt::format(" ... ({} bytes) ... ", text.size() - kLongest);
    line += printable(text.substr(text.size() - kEnd));
  }
  write_err(line + "\n");
}

void clear_line() {
  write_all(STDERR_FILENO, "\r\x1b[K");
}

void flush_output() {
  flush();
}

void finish_output() {
  flush();
  if (output().lost_errno == 0) return;
  throw Error(ErrorCode::io, "standard output: expected to write all of the result, got: {}",
              std::strerror(output().lost_errno));
}

}  // namespace octet
