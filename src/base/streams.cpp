// FIFOs, terminals, descriptors of this process: read to their end, or written to as they are.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

class BytesReader : public FileReader {
 public:
  BytesReader(std::string path, std::string bytes)
      : path_(std::move(path)), bytes_(std::move(bytes)) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return bytes_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    const uint64_t n_left = offset < bytes_.size() ? bytes_.size() - offset : 0;
    if (out.size() > n_left) {
      throw Error(ErrorCode::io, "[files] cannot read '{}': expected {} bytes at offset {}, got {}",
                  path_, out.size(), offset, n_left);
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }

 private:
  std::string path_, bytes_;
};

// Before its first writer a FIFO reads as one whose writers have gone; poll tells them apart.
bool awaits_writer(int fd) {
  struct stat info {};
  pollfd asked{fd, POLLIN, 0};
  return ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode) && ::poll(&asked, 1, 0) == 0;
}

// Some files of /proc have no end either: /proc/kmsg waits for the kernel's next message.
bool is_regular(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

std::string bytes_to_end(int fd, const std::string& path, uint64_t max_bytes) {
  std::string bytes;
  char block[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd, block, sizeof(block));
    if (n == 0) {
      if (!bytes.empty() || !awaits_writer(fd)) return bytes;
      wait_for(fd, POLLIN);
    } else if (n > 0) {
      bytes.append(block, static_cast<size_t>(n));
      if (bytes.size() > max_bytes) {
        throw Error(ErrorCode::bad_data,
                    "[files] cannot read '{}': expected at most {} bytes, got more", path,
                    max_bytes);
      }
    } else if (errno == EAGAIN && is_regular(fd)) {
      throw Error(ErrorCode::bad_data,
                  "[files] cannot read '{}': expected a file with an end, got one that waits for "
                  "more",
                  path);
    } else if (errno == EAGAIN) {
      wait_for(fd, POLLIN);
    } else if (errno != EINTR) {
      throw_io_error("read", path, errno);
    }
  }
}

// Written to as it is: no temporary file, nothing to sync.
class StreamWriter : public FileWriter {
 public:
  StreamWriter(std::string path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  void write(std::span<const std::byte> bytes) override { write_all(fd_.get(), path_, bytes); }
  void sync() override {}
  void close() override { close_or_throw(fd_, path_); }

 private:
  std::string path_;
  Descriptor fd_;
};

// The descriptor of this process that links lead to (/dev/stdout, /dev/fd/3), or -1.
int own_descriptor(std::string path) {
  constexpr int kMaxLinks = 40;
  const std::string descriptors = fmt::format("/proc/{}/fd", ::getpid());
  std::error_code error;
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(path, error); ++i) {
    const std::filesystem::path folder = std::filesystem::canonical(parent_path(path), error);
    const std::string name = file_name(path);
    const auto fd = parse_number<int>(name);
    if (folder == descriptors && fd) return *fd;
    path = (folder / std::filesystem::read_symlink(path, error)).string();
    if (error) return -1;
  }
  return -1;
}

}  // namespace

std::unique_ptr<FileReader> read_to_end(int fd, const std::string& path, uint64_t max_bytes) {
  try {
    return std::make_unique<BytesReader>(path, bytes_to_end(fd, path, max_bytes));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::device, "[files] cannot read '{}': out of memory", path);
  }
}

std::unique_ptr<FileWriter> open_posix_output_stream(const std::string& path) {
  if (const int own = own_descriptor(path); own >= 0) {
    Descriptor copy(::fcntl(own, F_DUPFD_CLOEXEC, 3));
    if (copy.get() < 0) throw_io_error("write to", path, errno);
    return std::make_unique<StreamWriter>(path, std::move(copy));
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return nullptr;
  if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return nullptr;
  Descriptor fd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (fd.get() < 0 && errno == ENXIO && S_ISFIFO(info.st_mode)) {
    throw Error(ErrorCode::io, "[files] cannot write to '{}': nobody reads from this FIFO", path);
  }
  if (fd.get() < 0) throw_io_error("write to", path, errno);
  return std::make_unique<StreamWriter>(path, std::move(fd));
}

}  // namespace octet
