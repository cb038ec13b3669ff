#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"

namespace octet {
namespace {

void sync_or_throw(int fd, const std::string& path) {
  if (TEMP_FAILURE_RETRY(::fsync(fd)) != 0) throw_io_error("sync", path, errno);
}

struct stat status_of(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw_io_error("inspect", path, errno);
  return info;
}

class PosixReader : public FileReader {
 public:
  PosixReader(std::string path, Descriptor fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return size_; }
  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    start_reading_on(offset, out.size());
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = TEMP_FAILURE_RETRY(::pread(fd_.get(), out.data() + done, out.size() - done,
                                                   static_cast<off_t>(offset + done)));
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
      : path_(path), fd_(open_or_throw(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, "create")) {}
  void write(std::span<const std::byte> bytes) override {
    write_all(fd_.get(), path_, bytes);
    n_written_ += std::ssize(bytes);
    start_writeback();
  }
  void sync() override { sync_or_throw(fd_.get(), path_); }
  void close() override { close_or_throw(fd_, path_); }
  bool is_at(const std::string& path) const override { return is_same_file(fd_.get(), path); }

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

class PosixRangeWriter : public RangeWriter {
 public:
  PosixRangeWriter(std::string path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  void write_at(uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = TEMP_FAILURE_RETRY(
          ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)));
      if (n < 0) throw_io_error("write to", path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }
  void sync() override { sync_or_throw(fd_.get(), path_); }
  void close() override { close_or_throw(fd_, path_); }

 private:
  std::string path_;
  Descriptor fd_;
};

EntryKind kind_of(unsigned mode) {
  if (S_ISREG(mode)) return EntryKind::file;
  if (S_ISDIR(mode)) return EntryKind::directory;
  return S_ISLNK(mode) ? EntryKind::link : EntryKind::other;
}

[[noreturn]] void throw_directory(const std::string& path) {
  throw Error(ErrorCode::bad_data, "[files] cannot read '{}': {}", path,
              std::generic_category().message(EISDIR));
}

bool is_link(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

// A terminal's user can end the input, /dev/null has none; other devices have no end.
bool has_end(int fd, const struct stat& info) {
  if (S_ISFIFO(info.st_mode)) return true;
  const bool is_null = S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
  return S_ISREG(info.st_mode) || is_null || (S_ISCHR(info.st_mode) && ::isatty(fd) == 1);
}

// A file of /proc says that it has no bytes, and has some, or will have. One that another process
// began to write in between says so when it is asked again.
bool hides_its_size(int fd, struct stat& info) {
  if (info.st_size != 0) return false;
  std::byte first{};
  const ssize_t n = ::pread(fd, &first, 1, 0);
  if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
  return ::fstat(fd, &info) != 0 || info.st_size == 0;
}

class PosixFiles : public Files {
 public:
  std::unique_ptr<FileReader> open(const std::string& path) const override {
    Descriptor fd = open_or_throw(path, O_RDONLY | O_NOCTTY, "open");
    struct stat info = status_of(fd.get(), path);
    if (S_ISDIR(info.st_mode)) throw_directory(path);
    if (!S_ISREG(info.st_mode)) throw_wrong_kind("read", path, "a regular file", info.st_mode);
    if (hides_its_size(fd.get(), info)) {
      throw Error(ErrorCode::bad_data,
                  "[files] cannot read '{}': expected a regular file, got one "
                  "that does not tell its size",
                  path);
    }
    return std::make_unique<PosixReader>(path, std::move(fd), static_cast<uint64_t>(info.st_size));
  }
  std::unique_ptr<FileReader> open_stream(const std::string& path,
                                          uint64_t max_bytes) const override {
    Descriptor fd = open_or_throw(path, O_RDONLY | O_NOCTTY, "open");
    struct stat info = status_of(fd.get(), path);
    if (S_ISDIR(info.st_mode)) throw_directory(path);
    if (!has_end(fd.get(), info)) {
      throw_wrong_kind("read", path, "a regular file or a pipe", info.st_mode);
    }
    if (!S_ISREG(info.st_mode) || hides_its_size(fd.get(), info)) {
      return read_to_end(fd.get(), path, max_bytes);
    }
    return std::make_unique<PosixReader>(path, std::move(fd), static_cast<uint64_t>(info.st_size));
  }
  std::vector<DirectoryEntry> list(const std::string& path) const override {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
    if (!dir) throw_io_error("list", path, errno);
    std::vector<DirectoryEntry> entries;
    for (errno = 0; const dirent* entry = ::readdir(dir.get()); errno = 0) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      struct stat info {};
      const bool is_known =
          ::fstatat(::dirfd(dir.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0;
      entries.push_back({name, is_known ? kind_of(info.st_mode) : EntryKind::other});
    }
    if (errno != 0) throw_io_error("list", path, errno);
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }
  EntryKind kind(const std::string& path) const override {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) return kind_of(info.st_mode);
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR) throw_io_error("inspect", path, error);
    if (!is_link(path)) return EntryKind::none;
    std::error_code ignored;
    throw Error(ErrorCode::io, "[files] cannot inspect '{}': a link to '{}', which is not there",
                path, std::filesystem::read_symlink(path, ignored).string());
  }
  EntryKind entry_kind(const std::string& path) const override {
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) return kind_of(info.st_mode);
    if (errno != ENOENT && errno != ENOTDIR) throw_io_error("inspect", path, errno);
    return EntryKind::none;
  }
  std::unique_ptr<FileWriter> create(const std::string& path) override {
    return std::make_unique<PosixWriter>(path);
  }
  std::unique_ptr<RangeWriter> open_ranges(const std::string& path) override {
    Descriptor fd = open_or_throw(path, O_WRONLY | O_NOFOLLOW, "open");
    const struct stat info = status_of(fd.get(), path);
    if (!S_ISREG(info.st_mode)) throw_wrong_kind("write to", path, "a regular file", info.st_mode);
    return std::make_unique<PosixRangeWriter>(path, std::move(fd));
  }
  std::optional<uint64_t> free_bytes(const std::string& folder) const override {
    struct statvfs info {};
    if (::statvfs(folder.c_str(), &info) != 0 || info.f_blocks == 0) return std::nullopt;
    return uint64_t{info.f_bavail} * info.f_frsize;
  }
  void create_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) throw_io_error("create directory", path, errno);
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      throw_io_error(fmt::format("rename '{}' to", from), to, errno);
    }
  }
  void sync_directory(const std::string& path) override {
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // A folder that one may write to but not list cannot be opened, and so not be synced.
    if (fd.get() < 0 && errno == EACCES) return;
    if (fd.get() < 0) throw_io_error("sync", path, errno);
    sync_or_throw(fd.get(), path);
  }
  void remove(const std::string& path) override {
    if (::remove(path.c_str()) != 0) throw_io_error("remove", path, errno);
  }
  std::unique_ptr<FileLock> lock(const std::string& path) override { return lock_posix_file(path); }
  std::string write_target(const std::string& path) const override {
    const EntryKind what = kind(path);
    if (what != EntryKind::none && what != EntryKind::file) {
      struct stat info {};
      ::stat(path.c_str(), &info);
      throw_wrong_kind("replace", path, "a regular file", info.st_mode);
    }
    return is_link(path) ? std::filesystem::canonical(path).string() : path;
  }
  bool holds_current_folder(const std::string& path) const override {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::canonical(path, error);
    const std::filesystem::path current = std::filesystem::current_path(error);
    if (error) return false;
    const auto end = std::mismatch(folder.begin(), folder.end(), current.begin(), current.end());
    const bool is_above = end.first == folder.end() && end.second != current.end();
    return is_above || folder == folder.root_path();
  }
  std::unique_ptr<FileWriter> open_output_stream(const std::string& path) override {
    return open_posix_output_stream(path);
  }
};

std::string text_of(const FileReader& file, uint64_t max_bytes) {
  if (file.size() > max_bytes) {
    throw Error(ErrorCode::bad_data, "[files] cannot read '{}': expected at most {} bytes, got {}",
                file.path(), max_bytes, file.size());
  }
  try {
    std::string text(file.size(), '\0');
    file.read_at(0, text);
    return text;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::device,
                "[files] cannot read '{}': expected {} bytes of memory, got none", file.path(),
                file.size());
  }
}

}  // namespace

std::vector<std::byte> Files::read_bytes(const std::string& path) const {
  const auto file = open(path);
  std::vector<std::byte> bytes(file->size());
  file->read_at(0, bytes);
  return bytes;
}

std::string Files::read_text(const std::string& path, uint64_t max_bytes) const {
  return text_of(*open(path), max_bytes);
}

std::string Files::read_stream(const std::string& path, uint64_t max_bytes) const {
  return text_of(*open_stream(path, max_bytes), max_bytes);
}

void Files::create_directories(const std::string& path) {
  std::vector<std::string> missing;  // the innermost first
  std::string folder = path;
  for (; kind(folder) == EntryKind::none && !folder.empty(); folder = parent_path(folder)) {
    missing.push_back(folder);
  }
  if (kind(folder) != EntryKind::directory) throw_io_error("create directory", path, ENOTDIR);
  for (auto next = missing.rbegin(); next != missing.rend(); ++next) {
    if (is_directory(*next)) continue;  // "a/." is there once "a" is
    try {
      create_directory(*next);
    } catch (const Error&) {
      if (!is_directory(*next)) throw;  // else another process was faster
    }
    sync_directory(parent_path(*next));
  }
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

}  // namespace octet
