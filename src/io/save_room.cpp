#include "io/save_room.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace octet {
namespace {

// Blocks of the files that grow.
constexpr int64_t kMargin = 32 << 10;

}  // namespace

SaveRoom::SaveRoom(const Files& files, std::string folder, uint64_t n_bytes)
    : files_(files), folder_(std::move(folder)), n_bytes_(n_bytes) {}

void SaveRoom::note_step(uint64_t n_written, bool is_saving, const Log& log) {
  step_bytes_ = std::max(step_bytes_, n_written);
  if (is_saving) {
    if (room_) *room_ -= static_cast<int64_t>(n_written);
    return;
  }
  const auto free = files_.free_bytes(files_.exists(folder_) ? folder_ : parent_path(folder_));
  room_ = free ? std::optional(static_cast<int64_t>(*free) - static_cast<int64_t>(n_bytes_))
               : std::nullopt;
  if (!room_ || *room_ >= 0 || std::exchange(has_warned_, true)) return;
  log.warning("[checkpoint] '{}' has {} free, and the next checkpoint will take {}: make room",
              folder_, bytes_text(static_cast<double>(*free)),
              bytes_text(static_cast<double>(n_bytes_)));
}

bool SaveRoom::is_short() const {
  return room_ && *room_ >= 0 && *room_ < kMargin + 2 * static_cast<int64_t>(step_bytes_);
}

}  // namespace octet
