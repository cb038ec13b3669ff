// The file layer: every access of src to the file system goes through Files, so that tests can
// inject full disks, short writes, failed renames and failed syncs.
//
// Reads are positioned reads (pread) rather than mappings: a file that shrinks or a disk that fails
// is an Error here, where a mapping would end the process with SIGBUS; and memory stays bounded for
// files larger than memory. Nothing waits for a FIFO but open_stream, which the user asked for.
//
// What cannot be told is an Error, never "not there": a folder of another user, a link that leads
// nowhere. New files never take the place of anything; write_atomically replaces regular files.
//
// Errors: Error{io}, "[files] cannot OPERATION 'PATH': REASON"; Error{bad_data} where a path leads
// to something of another kind or size than expected. Handles are RAII; a Files object holds no
// state, and readers may be used from several threads at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace octet {

class FileReader {
 public:
  virtual ~FileReader() = default;
  virtual const std::string& path() const = 0;
  virtual uint64_t size() const = 0;  // at the time of opening
  // Fills `out` from byte `offset`; fewer bytes than asked for are an Error.
  virtual void read_at(uint64_t offset, std::span<std::byte> out) const = 0;
  // Fills all of a string, vector or array.
  template <typename Values>
  void read_at(uint64_t offset, Values& values) const {
    read_at(offset, std::as_writable_bytes(std::span(values)));
  }
};

// Writes in sequence. Destroyed without close(), it gives the handle back and reports nothing.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void sync() = 0;   // returns when the bytes are on the medium
  virtual void close() = 0;  // reports the errors that a file system may delay until now
  // True while `path` still leads to this file; false once it was removed, moved or replaced.
  virtual bool is_at(const std::string&) const { return true; }
};

// Writes anywhere in a file that is there, which others may be writing at the same time. Destroyed
// without close(), it gives the handle back and reports nothing.
class RangeWriter {
 public:
  virtual ~RangeWriter() = default;
  virtual void write_at(uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;
};

enum class EntryKind { none, file, directory, link, other };  // other: a FIFO, socket or device

struct DirectoryEntry {
  std::string name;
  EntryKind kind = EntryKind::other;
};

// Held as long as it lives; the system lets go of it when the process ends, however it ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // "" where the lock holds; else why the file system cannot lock.
  virtual const std::string& problem() const = 0;
  // True while its file is still where it was locked; elsewhere it keeps nobody out.
  virtual bool is_in_place() const { return true; }
};

class Files {
 public:
  virtual ~Files() = default;
  virtual std::unique_ptr<FileReader> open(const std::string& path) const = 0;  // a regular file
  // A regular file as above; a FIFO, a terminal or a file of /proc is read to its end into memory,
  // at most max_bytes of it. For paths that the user gave, and that need not be read in parts.
  virtual std::unique_ptr<FileReader> open_stream(const std::string& path,
                                                  uint64_t /*max_bytes*/) const {
    return open(path);
  }
  virtual std::vector<DirectoryEntry> list(const std::string& path) const = 0;  // sorted by name
  virtual EntryKind kind(const std::string& path) const = 0;        // of what links lead to
  virtual EntryKind entry_kind(const std::string& path) const = 0;  // a link is a link

  virtual std::unique_ptr<FileWriter> create(const std::string& path) = 0;  // a name that is free
  virtual std::unique_ptr<RangeWriter> open_ranges(const std::string& path) = 0;  // a regular file
  virtual void create_directory(const std::string& path) = 0;  // a name that is free
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void sync_directory(const std::string& path) = 0;
  virtual void remove(const std::string& path) = 0;  // a file, a link or an empty directory
  // Makes `path` where it is missing, and locks it for this process. Where another one holds it:
  // Error{io}, which says who.
  virtual std::unique_ptr<FileLock> lock(const std::string& path) = 0;
  // Bytes that a user may still write into `folder`'s file system; nothing where it does not tell.
  virtual std::optional<uint64_t> free_bytes(const std::string& /*folder*/) const { return {}; }
  // The file that a write to `path` makes or replaces, links followed. Error{bad_data} where there
  // is something else than a regular file.
  virtual std::string write_target(const std::string& path) const { return path; }
  // True if the current folder lies within `path`, a folder, or `path` is the root.
  virtual bool holds_current_folder(const std::string& /*path*/) const { return false; }
  // For an output that the user named: what is no file but a FIFO, a terminal, /dev/null or one of
  // this process's descriptors (/dev/stdout) is written to as it is. Else nothing.
  virtual std::unique_ptr<FileWriter> open_output_stream(const std::string& /*path*/) {
    return nullptr;
  }

  // Built from the above.
  bool exists(const std::string& path) const { return kind(path) != EntryKind::none; }
  bool is_directory(const std::string& path) const { return kind(path) == EntryKind::directory; }
  uint64_t size(const std::string& path) const { return open(path)->size(); }
  std::vector<std::byte> read_bytes(const std::string& path) const;
  std::string read_text(const std::string& path, uint64_t max_bytes = kMaxTextBytes) const;
  std::string read_stream(const std::string& path, uint64_t max_bytes = kMaxTextBytes) const;
  void create_directories(const std::string& path);  // those that are missing; syncs their parents

  static constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;
};

// The operating system's files. The object is stateless, so that one serves everybody.
Files& posix_files();

// The Error for a failed operation ("open", "write to", "rename", ...); `error` is an errno value.
[[noreturn]] void throw_io_error(std::string_view operation, const std::string& path, int error);

std::string join_path(std::string_view folder, std::string_view name);
std::string parent_path(std::string_view path);  // "." for a bare name
std::string file_name(std::string_view path);

// Makes or replaces a regular file as one act: writes a temporary file beside it, syncs, renames,
// syncs the directory. Where `path` is a link, the file that it leads to is replaced. When anything
// fails the old file is untouched, the temporary one is removed as far as that is possible, and the
// Error goes on to the caller. base/temporary_file.h has the parts.
void write_atomically(Files& files, const std::string& path,
                      const std::function<void(FileWriter&)>& write);
void write_atomically(Files& files, const std::string& path, std::string_view text);

// The same for an output that the user named: what open_output_stream takes is written to as it is.
void write_output(Files& files, const std::string& path,
                  const std::function<void(FileWriter&)>& write);

}  // namespace octet
