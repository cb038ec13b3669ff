// The room for a run's next checkpoint. The rehearsal found it before the first step; what the run
// itself writes of its steps must not take it: a disk that metrics have filled takes no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files.h"
#include "base/log.h"

namespace octet {

class SaveRoom {
 public:
  // `folder` is RUN/ckpt, where a checkpoint takes `n_bytes`.
  SaveRoom(const Files& files, std::string folder, uint64_t n_bytes);

  // After a step of which `n_written` bytes were written. While a save runs, it takes what was free
  // before it, less what steps have written since: what is free then tells nothing. Warns, once,
  // where a checkpoint has no room any more.
  void note_step(uint64_t n_written, bool is_saving, const Log& log);

  // Whether the next steps may take the room, which a checkpoint still has. False where it has
  // none: then nothing is won by an early end.
  bool is_short() const;

 private:
  const Files& files_;
  std::string folder_;
  uint64_t n_bytes_;
  uint64_t step_bytes_ = 0;      // the most that a step wrote
  std::optional<int64_t> room_;  // free bytes beside a checkpoint; nothing where nobody knows
  bool has_warned_ = false;
};

}  // namespace octet
