// Declarations that the POSIX side of the file layer shares.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/files.h"

namespace octet {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  ~Descriptor();
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// open(2), close-on-exec and without waiting for the other end of a FIFO. The Error says
// `operation`.
Descriptor open_or_throw(const std::string& path, int flags, std::string_view operation);

// Reports what a file system may delay until now.
void close_or_throw(Descriptor& fd, const std::string& path);
// Until poll(2) has one of the events, or a signal ends it: the caller tries again either way.
void wait_for(int fd, short events);
// All of the bytes, waiting where a pipe is full.
void write_all(int fd, const std::string& path, std::span<const std::byte> bytes);
// True if `path` leads to the open file `fd`.
bool is_same_file(int fd, const std::string& path);

// "a FIFO", "a directory", ... for st_mode.
std::string_view kind_text(unsigned mode);
[[noreturn]] void throw_wrong_kind(std::string_view operation, const std::string& path,
                                   std::string_view expected, unsigned mode);

// Bytes that come from `fd` until its end, as a file. The descriptor does not block; a writer that
// has yet to come is waited for.
std::unique_ptr<FileReader> read_to_end(int fd, const std::string& path, uint64_t max_bytes);

// Files::open_output_stream of the operating system.
std::unique_ptr<FileWriter> open_posix_output_stream(const std::string& path);

// Files::lock of the operating system.
std::unique_ptr<FileLock> lock_posix_file(const std::string& path);

}  // namespace octet
