#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"

namespace octet {
namespace {

class PosixLock : public FileLock {
 public:
  PosixLock(Descriptor fd, std::string path, std::string problem)
      : fd_(std::move(fd)), path_(std::move(path)), problem_(std::move(problem)) {}
  const std::string& problem() const override { return problem_; }
  bool is_in_place() const override { return is_same_file(fd_.get(), path_); }

 private:
  Descriptor fd_;
  std::string path_, problem_;
};

// "process 4711 on host c12", as the holder wrote it.
std::string holder(int fd) {
  std::array<char, 200> text{};
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  const std::string_view line(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  const std::string_view name = line.substr(0, line.find('\n'));
  const bool is_plain = std::ranges::all_of(name, [](char ch) { return ch >= ' ' && ch <= '~'; });
  return name.starts_with("process ") && is_plain ? std::string(name) : "another process";
}

// Who holds it is for people to read: a failure to write it down is none of the lock's.
void sign(int fd) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"?"};
  const std::string text = fmt::format("process {} on host {}\n", ::getpid(), host.data());
  if (::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) < 0) errno = 0;
}

}  // namespace

std::unique_ptr<FileLock> lock_posix_file(const std::string& path) {
  Descriptor fd = open_or_throw(path, O_RDWR | O_CREAT | O_NOFOLLOW, "lock");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw_io_error("lock", path, errno);
  if (!S_ISREG(info.st_mode)) throw_wrong_kind("lock", path, "a regular file", info.st_mode);
  const auto rc = TEMP_FAILURE_RETRY(::flock(fd.get(), LOCK_EX | LOCK_NB));
  if (rc != 0 && errno == EWOULDBLOCK) {
    throw Error(ErrorCode::io, "[files] cannot lock '{}': {} holds it", path, holder(fd.get()));
  }
  std::string problem = rc == 0 ? "" : std::generic_category().message(errno);
  if (rc == 0) sign(fd.get());
  return std::make_unique<PosixLock>(std::move(fd), path, std::move(problem));
}

}  // namespace octet
