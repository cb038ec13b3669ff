// Text that a machine has anyway, as data to train on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/dataset.h"

namespace octet {

enum class PathOrigin {
  suggested,  // missing ones are left out
  named,      // by the user: missing ones are an Error
};

struct LocalTextOptions {
  std::vector<std::string> paths;  // files and folders
  PathOrigin origin = PathOrigin::suggested;
  int64_t max_bytes = 16 << 20;        // of all text together
  int64_t max_file_bytes = 512 << 10;  // of one file of suggested paths; longer ones are left out
  double val_fraction = 0.03;
};

// Files in the order of a hash of their paths, so that a limited amount is a fair sample, and the
// same one each time; the first val_fraction of the bytes is for validation, in whole files unless
// one is so long that it is cut in two. Of long files in named paths the start is taken. Files
// that are not readable UTF-8 text are left out. Byte tokens. Throws Error{bad_data} where there
// is too little text to train on (64 KiB).
Dataset collect_local_text(const Files& files, const LocalTextOptions& options);

}  // namespace octet
