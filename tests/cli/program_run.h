// Runs the program as a user does, and keeps what it wrote.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "unit/base/scratch_folder.h"

namespace octet::test {

struct Outcome {
  int code = -1;  // the exit status; -1 where a signal ended it
  std::string out, err;
};

// In the folder lie out.txt and err.txt afterwards.
inline Outcome run_program(const ScratchFolder& folder, const std::string& arguments,
                           const std::string& input = "/dev/null") {
  const std::string out = folder / "out.txt", err = folder / "err.txt";
  const std::string command =
      std::string(OCTET_PROGRAM) + " " + arguments + " >" + out + " 2>" + err + " <" + input;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, posix_files().read_text(out),
          posix_files().read_text(err)};
}

}  // namespace octet::test
