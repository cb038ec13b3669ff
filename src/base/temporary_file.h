// A file or folder under a name of its own, until it is whole and takes the name that it is for.
//
// Temporary names are PATH.PID-RANDOM.tmp, of the process that made them: two processes never meet
// in one, and what a killed process left can be told from what a living one is writing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/files.h"

namespace octet {

// Files that this process is writing and that are not whole yet. A signal that ends the process
// would leave them behind; its handler calls remove_unfinished_files() first.
//
// Stands for one such file from its creation until it is whole or removed. Names too long for the
// list, and files beyond its 64 places, are left out of it. May be used by several threads.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::string& path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

 private:
  int slot_ = -1;
};

// May be called from a signal handler. The process must end after it.
void remove_unfinished_files();

// A name beside `path` that nobody else has.
std::string temporary_name(const std::string& path);

// True if `name` is a temporary name for `of`, left by a process of this machine that has ended. A
// name of this process counts as left: ask where nothing of one's own is being written.
bool is_left_over(std::string_view name, std::string_view of);

// Removes what ended processes left in `folder` for the file `name`.
void remove_left_overs(Files& files, const std::string& folder, std::string_view name);

class TemporaryFile {
 public:
  // For the file that `path` is or leads to (Files::write_target).
  TemporaryFile(Files& files, const std::string& path);
  // Removes the file unless it has been put in place; a failure to do so is not reported.
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  FileWriter& writer() { return *writer_; }
  // Takes the name that it is for, and syncs the folder. The writer may stay open.
  void put_in_place();
  // The writer of a file that is in place and grows on.
  std::unique_ptr<FileWriter> take_writer() { return std::move(writer_); }

 private:
  Files& files_;
  std::string target_, temporary_;
  std::unique_ptr<FileWriter> writer_;
  std::optional<UnfinishedFile> unfinished_;
  bool is_in_place_ = false;
};

}  // namespace octet
