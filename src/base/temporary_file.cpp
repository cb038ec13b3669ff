#include "base/temporary_file.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/if_there.h"
#include "base/parse_text.h"

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

namespace {

constexpr std::string_view kEnd = ".tmp";

bool is_alive(pid_t process) {
  return process != ::getpid() && (::kill(process, 0) == 0 || errno == EPERM);
}

}  // namespace

std::string temporary_name(const std::string& path) {
  constexpr size_t kLongest = 200;  // of the name, which may have 255 bytes in all
  const std::string name = file_name(path).substr(0, kLongest);
  const uint32_t random = std::random_device()();
  const std::string temporary = fmt::format("{}.{}-{:08x}{}", name, ::getpid(), random, kEnd);
  const size_t n_folder = path.size() - file_name(path).size();
  return path.substr(0, n_folder) + temporary;
}

bool is_left_over(std::string_view name, std::string_view of) {
  if (!name.starts_with(of) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(of.size());
  name.remove_suffix(std::min(name.size(), kEnd.size()));
  if (!name.starts_with('.')) return false;
  const size_t dash = std::min(name.find('-'), name.size());
  const auto process = parse_number<pid_t>(name.substr(1, dash - 1));
  const std::string_view random = name.substr(dash);
  return process && *process > 0 && random.size() == 9 &&
         random.find_first_not_of("0123456789abcdef", 1) == random.npos && !is_alive(*process);
}

void remove_left_overs(Files& files, const std::string& folder, std::string_view name) {
  for (const DirectoryEntry& entry : files.list(folder)) {
    const bool is_file = entry.kind == EntryKind::file;
    if (is_file && is_left_over(entry.name, name))
      remove_if_there(files, join_path(folder, entry.name));
  }
}

namespace {

// An error tells of the file that is wanted.
std::unique_ptr<FileWriter> created(Files& files, const std::string& temporary,
                                    const std::string& target) {
  try {
    return files.create(temporary);
  } catch (const Error& error) {
    std::string text = error.what();
    if (const size_t at = text.find(temporary); at != text.npos)
      text.replace(at, temporary.size(), target);
    throw Error(error.code(), "{}", text);
  }
}

}  // namespace

TemporaryFile::TemporaryFile(Files& files, const std::string& path)
    : files_(files),
      target_(files.write_target(path)),
      temporary_(temporary_name(target_)),
      writer_(created(files, temporary_, target_)),
      unfinished_(temporary_) {}

TemporaryFile::~TemporaryFile() {
  if (is_in_place_) return;
  try {
    files_.remove(temporary_);
  } catch (const Error&) {  // what went before is the failure to report
  }
}

void TemporaryFile::put_in_place() {
  files_.rename(temporary_, target_);
  is_in_place_ = true;
  unfinished_.reset();
  files_.sync_directory(parent_path(target_));
}

void write_atomically(Files& files, const std::string& path,
                      const std::function<void(FileWriter&)>& write) {
  TemporaryFile file(files, path);
  write(file.writer());
  file.writer().sync();
  file.writer().close();
  file.put_in_place();
}

void write_atomically(Files& files, const std::string& path, std::string_view text) {
  write_atomically(files, path, [&](FileWriter& file) { file.write(as_bytes(text)); });
}

void write_output(Files& files, const std::string& path,
                  const std::function<void(FileWriter&)>& write) {
  const auto stream = files.open_output_stream(path);
  if (!stream) return write_atomically(files, path, write);
  write(*stream);
  stream->close();
}

}  // namespace octet
