#include "base/descriptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace octet {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor open_or_throw(const std::string& path, int flags, std::string_view operation) {
  Descriptor fd(TEMP_FAILURE_RETRY(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666)));
  if (fd.get() < 0) throw_io_error(operation, path, errno);
  return fd;
}

void close_or_throw(Descriptor& fd, const std::string& path) {
  // After EINTR the descriptor is gone on Linux: a second close could hit somebody else's file.
  if (::close(fd.release()) != 0 && errno != EINTR) throw_io_error("close", path, errno);
}

void wait_for(int fd, short events) {
  pollfd asked{fd, events, 0};
  ::poll(&asked, 1, -1);
}

void write_all(int fd, const std::string& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = TEMP_FAILURE_RETRY(::write(fd, bytes.data(), bytes.size()));
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      wait_for(fd, POLLOUT);
    } else {
      throw_io_error("write to", path, errno);
    }
  }
}

bool is_same_file(int fd, const std::string& path) {
  struct stat open {};
  struct stat there {};
  if (::fstat(fd, &open) != 0 || open.st_nlink == 0) return false;
  return ::stat(path.c_str(), &there) == 0 && open.st_dev == there.st_dev &&
         open.st_ino == there.st_ino;
}

std::string_view kind_text(unsigned mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

void throw_wrong_kind(std::string_view operation, const std::string& path,
                      std::string_view expected, unsigned mode) {
  throw Error(ErrorCode::bad_data, "[files] cannot {} '{}': expected {}, got {}", operation, path,
              expected, kind_text(mode));
}

}  // namespace octet
