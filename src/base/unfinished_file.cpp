#include "base/unfinished_file.h"

#include <unistd.h>

#include <atomic>
#include <cstring>

namespace octet {
namespace {

enum State : int { is_free, is_filled_in, is_listed };

struct Slot {
  std::atomic<int> state{is_free};
  char path[4096];
};
static_assert(std::atomic<int>::is_always_lock_free, "a handler may touch it");

// A handler can reach nothing but what is static.
Slot slots[64];

}  // namespace

UnfinishedFile::UnfinishedFile(const std::string& path) {
  if (path.size() >= sizeof(Slot::path)) return;
  for (int i = 0; i < static_cast<int>(std::size(slots)); ++i) {
    int free = is_free;
    if (!slots[i].state.compare_exchange_strong(free, is_filled_in)) continue;
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].state = is_listed;
    slot_ = i;
    return;
  }
}

UnfinishedFile::~UnfinishedFile() {
  if (slot_ >= 0) slots[slot_].state = is_free;
}

void remove_unfinished_files() {
  for (const Slot& slot : slots) {
    if (slot.state == is_listed) ::unlink(slot.path);
  }
}

}  // namespace octet
