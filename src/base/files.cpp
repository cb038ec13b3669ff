#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace octet {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int open_or_throw(const std::string& path, int flags, std::string_view operation) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw_io_error(operation, path, errno);
  return fd;
}

void sync_or_throw(int fd, const std::string& path) {
  int rc = 0;
  do {
    rc = ::fsync(fd);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) throw_io_error("sync", path, errno);
}

class PosixReader : public FileReader {
 public:
  explicit PosixReader(const std::string& path)
      : path_(path), fd_(open_or_throw(path, O_RDONLY, "open")) {
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) throw_io_error("inspect", path, errno);
    if (S_ISDIR(info.st_mode)) throw_io_error("read", path, EISDIR);
    size_ = static_cast<uint64_t>(info.st_size);
  }
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return size_; }
  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    start_reading_on(offset, out.size());
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::pread(fd_.get(), out.data() + done, out.size() - done,
                                static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_io_error("read", path_, errno);
      if (n == 0) {
        throw Error(ErrorCode::io,
                    "[files] cannot read '{}': expected {} bytes at offset {}, got {}", path_,
                    out.size(), offset, done);
      }
      done += static_cast<size_t>(n);
    }
  }

 private:
  // After a large read, others are likely to follow: the system's own readahead keeps a disk busy
  // with less than it can take at a time. A hint, whose failure means nothing.
  void start_reading_on(uint64_t offset, size_t n_bytes) const {
    constexpr size_t kLarge = 1 << 20;
    if (n_bytes < kLarge) return;
    ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(4 * n_bytes),
                    POSIX_FADV_WILLNEED);
  }

  std::string path_;
  Descriptor fd_;
  uint64_t size_ = 0;
};

class PosixWriter : public FileWriter {
 public:
  explicit PosixWriter(const std::string& path)
      : path_(path), fd_(open_or_throw(path, O_WRONLY | O_CREAT | O_TRUNC, "create")) {}
  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_io_error("write to", path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(n));
      n_written_ += n;
    }
    start_writeback();
  }
  void sync() override { sync_or_throw(fd_.get(), path_); }
  void close() override {
    // After EINTR the descriptor is gone on Linux: a second close could hit somebody else's file.
    if (::close(fd_.release()) != 0 && errno != EINTR) throw_io_error("close", path_, errno);
  }

 private:
  // Has the system begin to put a large file on its medium while more of it comes, so that sync()
  // finds little left. A hint: where it cannot be followed, sync() does it all.
  void start_writeback() {
    constexpr off_t kEvery = 32 << 20;
    if (n_written_ - n_started_ < kEvery) return;
    ::sync_file_range(fd_.get(), n_started_, n_written_ - n_started_, SYNC_FILE_RANGE_WRITE);
    n_started_ = n_written_;
  }

  std::string path_;
  Descriptor fd_;
  off_t n_written_ = 0, n_started_ = 0;
};

EntryKind entry_kind(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return EntryKind::other;
  if (S_ISREG(info.st_mode)) return EntryKind::file;
  return S_ISDIR(info.st_mode) ? EntryKind::directory : EntryKind::other;
}

class PosixFiles : public Files {
 public:
  std::unique_ptr<FileReader> open(const std::string& path) const override {
    return std::make_unique<PosixReader>(path);
  }
  std::vector<DirectoryEntry> list(const std::string& path) const override {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
    if (!dir) throw_io_error("list", path, errno);
    std::vector<DirectoryEntry> entries;
    for (errno = 0; const dirent* entry = ::readdir(dir.get()); errno = 0) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      entries.push_back({name, entry_kind(join_path(path, name))});
    }
    if (errno != 0) throw_io_error("list", path, errno);
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }
  bool exists(const std::string& path) const override {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0;
  }
  bool is_directory(const std::string& path) const override {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }
  std::unique_ptr<FileWriter> create(const std::string& path) override {
    return std::make_unique<PosixWriter>(path);
  }
  void create_directories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) throw_io_error("create directory", path, error.value());
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      throw_io_error(fmt::format("rename '{}' to", from), to, errno);
    }
  }
  void sync_directory(const std::string& path) override {
    const Descriptor fd(open_or_throw(path, O_RDONLY | O_DIRECTORY, "sync"));
    sync_or_throw(fd.get(), path);
  }
  void remove(const std::string& path) override {
    if (::remove(path.c_str()) != 0) throw_io_error("remove", path, errno);
  }
};

}  // namespace

std::vector<std::byte> Files::read_bytes(const std::string& path) const {
  const auto file = open(path);
  std::vector<std::byte> bytes(file->size());
  file->read_at(0, bytes);
  return bytes;
}

std::string Files::read_text(const std::string& path) const {
  const auto file = open(path);
  std::string text(file->size(), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void Files::remove_tree(const std::string& path) {
  for (const DirectoryEntry& entry : list(path)) {
    const std::string child = join_path(path, entry.name);
    if (entry.kind == EntryKind::directory) {
      remove_tree(child);
    } else {
      remove(child);
    }
  }
  remove(path);
}

Files& posix_files() {
  static PosixFiles files;
  return files;
}

void throw_io_error(std::string_view operation, const std::string& path, int error) {
  throw Error(ErrorCode::io, "[files] cannot {} '{}': {}", operation, path,
              std::generic_category().message(error));
}

std::string join_path(std::string_view folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

std::string parent_path(std::string_view path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string file_name(std::string_view path) {
  return std::filesystem::path(path).filename().string();
}

void write_atomically(Files& files, const std::string& path,
                      const std::function<void(FileWriter&)>& write) {
  const std::string temporary = path + ".tmp";
  try {
    const auto file = files.create(temporary);
    write(*file);
    file->sync();
    file->close();
    files.rename(temporary, path);
  } catch (...) {
    try {
      if (files.exists(temporary)) files.remove(temporary);
    } catch (const Error&) {  // the first failure is the one to report
    }
    throw;
  }
  files.sync_directory(parent_path(path));
}

void write_atomically(Files& files, const std::string& path, std::string_view text) {
  write_atomically(files, path, [&](FileWriter& file) { file.write(as_bytes(text)); });
}

}  // namespace octet
