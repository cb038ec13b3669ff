// The file layer: every access of src to the file system goes through Files, so that tests can
// inject full disks, short writes, failed renames and failed syncs.
//
// Reads are positioned reads (pread) rather than mappings: a file that shrinks or a disk that fails
// is an Error here, where a mapping would end the process with SIGBUS; and memory stays bounded for
// files larger than memory.
//
// Errors: Error{io}, "[files] cannot OPERATION 'PATH': REASON". Handles are RAII; a Files object
// holds no state, and readers may be used from several threads at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

class FileReader {
 public:
  virtual ~FileReader() = default;
  virtual const std::string& path() const = 0;
  virtual uint64_t size() const = 0;  // at the time of opening
  // Fills `out` from byte `offset`; fewer bytes than asked for are an Error.
  virtual void read_at(uint64_t offset, std::span<std::byte> out) const = 0;
};

// Writes in sequence. Destroyed without close(), it gives the handle back and reports nothing.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void sync() = 0;   // returns when the bytes are on the medium
  virtual void close() = 0;  // reports the errors that a file system may delay until now
};

enum class EntryKind { file, directory, other };  // symbolic links and devices are `other`

struct DirectoryEntry {
  std::string name;
  EntryKind kind = EntryKind::other;
};

class Files {
 public:
  virtual ~Files() = default;
  virtual std::unique_ptr<FileReader> open(const std::string& path) const = 0;
  virtual std::vector<DirectoryEntry> list(const std::string& path) const = 0;  // sorted by name
  virtual bool exists(const std::string& path) const = 0;                       // follows links
  virtual bool is_directory(const std::string& path) const = 0;

  virtual std::unique_ptr<FileWriter> create(const std::string& path) = 0;  // truncates
  virtual void create_directories(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void sync_directory(const std::string& path) = 0;
  virtual void remove(const std::string& path) = 0;  // a file or an empty directory

  // Built from the above.
  uint64_t size(const std::string& path) const { return open(path)->size(); }
  std::vector<std::byte> read_bytes(const std::string& path) const;
  std::string read_text(const std::string& path) const;
  void remove_tree(const std::string& path);  // depth first, in the order of list
};

// The operating system's files. The object is stateless, so that one serves everybody.
Files& posix_files();

// The Error for a failed operation ("open", "write to", "rename", ...); `error` is an errno value.
[[noreturn]] void throw_io_error(std::string_view operation, const std::string& path, int error);

std::string join_path(std::string_view folder, std::string_view name);
std::string parent_path(std::string_view path);  // "." for a bare name
std::string file_name(std::string_view path);

// Replaces `path` as one act: writes `path`.tmp beside it, syncs, renames, syncs the directory.
// When anything fails the old file is untouched, the temporary one is removed as far as that is
// possible, and the Error goes on to the caller.
void write_atomically(Files& files, const std::string& path,
                      const std::function<void(FileWriter&)>& write);
void write_atomically(Files& files, const std::string& path, std::string_view text);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace octet
