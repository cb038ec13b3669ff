// Files that this process is writing and that are not whole yet. A signal that ends the process
// would leave them behind; its handler calls remove_unfinished_files() first.
#pragma once

#include <string>

namespace octet {

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

}  // namespace octet
