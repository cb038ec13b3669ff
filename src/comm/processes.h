// Ranks as processes of one host, over memory that they share.
//
// They wait by looking, not by locks: a process that is killed at any point leaves nothing behind
// that others could wait for, but its absence, which whoever watches it says by fail().
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/group.h"

namespace octet {

// Made once, before the ranks are forked; each takes its own group from its copy.
class ProcessBoard {
 public:
  static constexpr int kMostRanks = 64;

  // stuck: how long ranks wait for their devices while none gets on.
  explicit ProcessBoard(int n_ranks, std::chrono::milliseconds stuck = std::chrono::seconds(120));
  ~ProcessBoard();
  ProcessBoard(const ProcessBoard&) = delete;
  ProcessBoard& operator=(const ProcessBoard&) = delete;

  // The board must outlive it.
  std::unique_ptr<Group> group(int rank);
  // A rank has ended: calls of all others throw from now on. Whether it is the first, which counts.
  bool fail(int rank, const std::string& why);
  int failed_rank() const;  // that one; -1: none
  // Grows as long as the rank's process runs, whatever its work is doing: some times a second.
  int64_t signs_of_life(int rank) const;

 private:
  friend class ProcessGroup;
  struct State;
  std::byte* slot(int rank) const;

  State* state_ = nullptr;
  const std::chrono::milliseconds stuck_;
  size_t bytes_ = 0;
};

}  // namespace octet
