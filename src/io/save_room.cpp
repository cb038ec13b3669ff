#include "io/save_room.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/temporary_file.h"
#include "base/units.h"
#include "io/checkpoint_folder.h"

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

namespace {

std::string text_of(uint64_t n_bytes) {
  return bytes_text(static_cast<double>(n_bytes));
}

// Under the name of a file that a later save removes, should the process be killed here.
std::string sample_file(const std::string& temporary) {
  return join_path(temporary, kModel);
}

}  // namespace

SaveRehearsal::SaveRehearsal(Files& files, std::string folder)
    : files_(files), folder_(std::move(folder)) {}

void SaveRehearsal::check_room(uint64_t n_bytes, int64_t n_more, const Log& log) const {
  const std::string where = files_.exists(folder_) ? folder_ : parent_path(folder_);
  const auto free = files_.free_bytes(where);
  if (!free) return;
  if (*free < n_bytes) {
    throw Error(ErrorCode::io,
                "[checkpoint] expected {} free in '{}' for a checkpoint, got {} (make room, or "
                "choose another folder with out)",
                text_of(n_bytes), where, text_of(*free));
  }
  const uint64_t needed = static_cast<uint64_t>(n_more) * n_bytes;
  if (*free >= needed) return;
  log.warning("[checkpoint] '{}' has {} free, and {} more checkpoints will take {} (train.keep)",
              where, text_of(*free), n_more, text_of(needed));
}

std::string SaveRehearsal::begin() {
  has_made_folder_ = !files_.exists(folder_);
  files_.create_directories(folder_);
  begun_ = temporary_name(join_path(folder_, "step-000000"));
  files_.create_directory(begun_);
  files_.create(sample_file(begun_))->close();
  return begun_;
}

uint64_t SaveRehearsal::write(const std::string& temporary, uint64_t at,
                              std::span<const std::byte> sample) {
  const auto file = files_.open_ranges(sample_file(temporary));
  file->write_at(at, sample);
  file->sync();
  file->close();
  PositionalHash hash;
  hash.update(at, sample);
  return hash.digest();
}

void SaveRehearsal::verify(const std::string& temporary, uint64_t sum) const {
  files_.sync_directory(temporary);
  PositionalHash hash;
  hash.update(0, files_.read_bytes(sample_file(temporary)));
  if (hash.digest() == sum) return;
  throw Error(ErrorCode::io,
              "[checkpoint] '{}': expected what the ranks wrote, got other bytes (do all see one "
              "file system?)",
              sample_file(temporary));
}

SaveRehearsal::~SaveRehearsal() {
  try {
    if (!begun_.empty() && files_.exists(begun_)) remove_checkpoint(files_, begun_);
    if (has_made_folder_ && files_.exists(folder_) && files_.list(folder_).empty())
      files_.remove(folder_);
  } catch (const std::exception&) {  // what failed before is told
  }
}

}  // namespace octet
