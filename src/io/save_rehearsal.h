// What a run's first save will need, tried before its first step, so that nothing fails first after
// hours of work: room, a folder beside the checkpoints, files that every rank can open, that take
// bytes, can be synced, and give the bytes back. Leaves nothing behind.
//
// One rank begins, each writes a sample, and when all have, the first verifies. Errors: those of
// the file layer, Error{io}, "[checkpoint] ...".
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/files.h"
#include "base/log.h"

namespace octet {

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
