// Runs the program as a user does, and keeps what it wrote.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "unit/base/scratch_folder.h"

namespace octet::test {

struct Outcome {
  int code = -1;  // the exit status; -1 where a signal ended it
  std::string out, err;
};

// For a child: runs the program in this process, or ends with 127.
[[noreturn]] inline void become_program(std::vector<std::string> arguments) {
  std::string program = "octet";
  std::vector<char*> words = {program.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  ::execv(OCTET_PROGRAM, words.data());
  ::_exit(127);
}

// Outcome of what ended with this status and wrote out.txt and err.txt.
inline Outcome outcome_of(const ScratchFolder& folder, int status) {
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, posix_files().read_text(folder / "out.txt"),
          posix_files().read_text(folder / "err.txt")};
}
// Outcome of this line in a shell. In the folder lie out.txt and err.txt afterwards.
inline Outcome run_shell(const ScratchFolder& folder, const std::string& line) {
  const std::string to = " >" + (folder / "out.txt") + " 2>" + (folder / "err.txt");
  return outcome_of(folder, std::system((line + to).c_str()));
}
inline Outcome run_program(const ScratchFolder& folder, const std::string& arguments,
                           const std::string& input = "/dev/null") {
  return run_shell(folder, std::string(OCTET_PROGRAM) + " " + arguments + " <" + input);
}

}  // namespace octet::test
