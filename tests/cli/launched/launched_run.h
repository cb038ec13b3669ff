// Ranks as processes that a launcher's variables describe, each of the program itself.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"
#include "comm/tcp/socket.h"
#include "io/checkpoint.h"

namespace octet::test {

inline int free_port() {
  return tcp::port_of(tcp::listen_at("127.0.0.1", 0));
}

using Environment = std::map<std::string, std::string>;

// torchrun's variables.
inline Environment rank_variables(int rank, int size, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"OCTET_JOIN_SECONDS", "20"}};
}

// A program of these words, with standard error in a file of its own.
class Launched {
 public:
  Launched(std::string err, const Environment& environment, std::vector<std::string> words)
      : err_(std::move(err)), pid_(::fork()) {
    if (pid_ != 0) return;
    ::dup2(::open("/dev/null", O_RDWR), 0);
    ::dup2(0, 1);
    ::dup2(::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666), 2);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ~Launched() {
    if (is_done_ || pid_ <= 0) return;  // -1 is everybody
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  // The exit code; -1 where a signal ended it or it still runs after `seconds`.
  int code_within(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    int status = 0;
    while (!is_done_ && std::chrono::steady_clock::now() < end) {
      is_done_ = ::waitpid(pid_, &status, WNOHANG) == pid_;
      if (!is_done_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return is_done_ && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string err() const { return posix_files().read_text(err_); }

 private:
  std::string err_;
  pid_t pid_;
  bool is_done_ = false;
};

// Ranks of a tiny model, and runs to compare theirs with.
class LaunchedRuns : public testing::Test {
 protected:
  static constexpr double kSeconds = 60;

  std::vector<std::string> train_words(const std::string& out, const std::string& flags) const {
    std::vector<std::string> words = {OCTET_PROGRAM, "train", config_,
                                      "--quiet",     "--set", "out=" + (folder_ / out)};
    std::istringstream text(flags);
    for (std::string word; text >> word;) words.push_back(word);
    return words;
  }
  std::unique_ptr<Launched> start(const Environment& environment, std::vector<std::string> words) {
    return std::make_unique<Launched>(folder_ / fmt::format("err{}.txt", n_started_++), environment,
                                      std::move(words));
  }
  // All ranks of a run, over TCP.
  std::vector<std::unique_ptr<Launched>> start_ranks(int n, const std::string& out,
                                                     const std::string& flags,
                                                     const Environment& more = {}) {
    const int port = free_port();
    std::vector<std::unique_ptr<Launched>> ranks;
    for (int rank = 0; rank < n; ++rank) {
      Environment variables = rank_variables(rank, n, port);
      variables.insert(more.begin(), more.end());
      ranks.push_back(start(variables, train_words(out, flags)));
    }
    return ranks;
  }
  // The same ranks as threads of one process.
  void train_threads(int n, const std::string& out, const std::string& flags) {
    const Outcome outcome =
        run_program(folder_, fmt::format("train --quiet --ranks {} {} --set out={} {}", n, config_,
                                         folder_ / out, flags));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  std::vector<std::string> loss_bits(const std::string& out) {
    return test::loss_bits(folder_ / out);
  }
  std::string tensors(const std::string& out, int64_t step) {
    return checkpoint_bytes(folder_ / out, step);
  }
  void expect_same_runs(const std::string& one, const std::string& other) {
    EXPECT_FALSE(loss_bits(one).empty());
    EXPECT_EQ(loss_bits(one), loss_bits(other));
    EXPECT_TRUE(tensors(one, 6) == tensors(other, 6)) << one << " " << other;
  }
  // Waits for so many of the run's lines of metrics.
  void await_steps(const std::string& out, size_t n_steps = 3) {
    for (int i = 0; i < 4000 && !posix_files().exists(folder_ / out + "/metrics.jsonl"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // Lines that have ended alone: a file can be read while a line of it is written.
    const auto n_lines = [&] {
      const auto text = posix_files().read_text(folder_ / out + "/metrics.jsonl");
      return static_cast<size_t>(std::ranges::count(text, '\n'));
    };
    for (int i = 0; i < 4000 && n_lines() < n_steps; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_GE(n_lines(), n_steps);
  }
  // Waits for a checkpoint of a run that saves in the background.
  void await_checkpoint(const std::string& out) {
    const Checkpoints checkpoints(posix_files(), folder_ / out + "/ckpt");
    const auto is_whole = [](const CheckpointEntry& entry) { return entry.is_whole(); };
    for (int i = 0; i < 4000 && std::ranges::none_of(checkpoints.list(), is_whole); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  const ScratchFolder folder_;
  const std::string config_ = folder_.put("tiny.yaml", tiny_yaml(folder_));
  int n_started_ = 0;
};

}  // namespace octet::test
