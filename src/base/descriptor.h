// What the POSIX side of the file layer shares.
#pragma once

#include <memory>
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

// Whether `path` leads to the open file `fd`.
bool is_same_file(int fd, const std::string& path);

// "a FIFO", "a directory", ... for st_mode.
std::string_view kind_text(unsigned mode);
[[noreturn]] void throw_wrong_kind(std::string_view operation, const std::string& path,
                                   std::string_view expected, unsigned mode);

// What comes from `fd` until its end, as a file. The descriptor does not block; a writer that has
// yet to come is waited for.
std::unique_ptr<FileReader> read_to_end(int fd, const std::string& path, uint64_t max_bytes);

// Files::open_output_stream of the operating system.
std::unique_ptr<FileWriter> open_posix_output_stream(const std::string& path);

// Files::lock of the operating system.
std::unique_ptr<FileLock> lock_posix_file(const std::string& path);

}  // namespace octet
