// The program as a process of its own.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cli/program_run.h"
#include "unit/base/scratch_folder.h"

namespace octet::test {

// The program in the folder, with standard input and output from and to nowhere and standard error
// in err.txt, unless `prepare` says otherwise.
class Child {
 public:
  Child(
      const ScratchFolder& folder, std::vector<std::string> arguments,
      const std::function<void()>& prepare = [] {})
      : pid_(::fork()) {
    if (pid_ != 0) return;
    if (::chdir(folder.path().c_str()) != 0) ::_exit(126);
    ::dup2(::open("/dev/null", O_RDWR), 0);
    ::dup2(0, 1);
    ::dup2(::open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    prepare();
    become_program(std::move(arguments));
  }
  ~Child() {
    if (is_done_ || pid_ <= 0) return;  // -1 is everybody
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void signal(int number) {
    if (pid_ > 0) ::kill(pid_, number);
  }
  bool is_running() {
    if (!is_done_) is_done_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return !is_done_;
  }
  // The exit code; -1 where it was killed or still runs after `seconds`.
  int code_within(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (is_running() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return is_done_ && WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }

 private:
  pid_t pid_;
  int status_ = 0;
  bool is_done_ = false;
};

}  // namespace octet::test
