// The room for a run's next checkpoint. The rehearsal found it before the first step; what the run
// itself writes of its steps must not take it: a disk that metrics have filled takes no state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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

  // True if the next steps may take the room, which a checkpoint still has. False where it has
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

// Needs of a run's first save, tried before its first step, so that nothing fails first after hours
// of work: room, a folder beside the checkpoints, files that every rank can open, that take bytes,
// can be synced, and give the bytes back. Leaves nothing behind.
//
// One rank begins, each writes a sample, and when all have, the first verifies. Errors: those of
// the file layer, Error{io}, "[checkpoint] ...".
class SaveRehearsal {
 public:
  // `folder` is RUN/ckpt.
  SaveRehearsal(Files& files, std::string folder);
  // Removes what begin() made, as far as that is possible.
  ~SaveRehearsal();
  SaveRehearsal(const SaveRehearsal&) = delete;
  SaveRehearsal& operator=(const SaveRehearsal&) = delete;

  // Throws where one checkpoint of so many bytes has no room; warns where the `n_more` that will
  // lie there besides what is there now have none.
  void check_room(uint64_t n_bytes, int64_t n_more, const Log& log) const;
  // A folder for the samples; its path.
  std::string begin();
  // Gives the sample's PositionalHash at its place.
  uint64_t write(const std::string& temporary, uint64_t at, std::span<const std::byte> sample);
  void verify(const std::string& temporary, uint64_t sum) const;

 private:
  Files& files_;
  std::string folder_, begun_;
  bool has_made_folder_ = false;
};

}  // namespace octet
