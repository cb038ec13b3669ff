#include "cli/rank_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/hash.h"

namespace octet {
namespace {

constexpr std::chrono::seconds kSeen{5};  // for what one host writes to be seen on another

uint64_t hash_of(const std::string& text) {
  Xxh64 hash;
  hash.update(text);
  return hash.digest();
}

std::string joined(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + '\0' + value + '\0';
  return text;
}

Facts separated(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size(); at += words.back().size() + 1)
    words.emplace_back(text.c_str() + at);
  Facts facts;
  for (size_t i = 0; i + 1 < words.size(); i += 2) facts.emplace_back(words[i], words[i + 1]);
  return facts;
}

std::string text_of_root(Group& group, std::string text) {
  auto n_bytes = std::ssize(text);
  group.broadcast(reinterpret_cast<std::byte*>(&n_bytes), sizeof(n_bytes), 0);
  text.resize(static_cast<size_t>(n_bytes));
  group.broadcast(reinterpret_cast<std::byte*>(text.data()), n_bytes, 0);
  return text;
}

[[noreturn]] void throw_difference(const Facts& theirs, const Facts& mine) {
  for (size_t i = 0; i < mine.size() && i < theirs.size(); ++i) {
    if (mine[i] == theirs[i]) continue;
    throw Error(ErrorCode::invalid_argument, "{}: expected {} as rank 0 has it, got {}",
                mine[i].first, theirs[i].second, mine[i].second);
  }
  throw Error(ErrorCode::invalid_argument, "expected the {} settings of rank 0, got {}",
              theirs.size(), mine.size());
}

// A file of rank 0's, removed again, with the folder where it was not there and stays empty.
class Token {
 public:
  Token(Files& files, const std::string& folder) : files_(files), folder_(folder) {
    is_new_ = !files.exists(folder);
    if (is_new_) files.create_directories(folder);
    std::random_device random;
    name_ = fmt::format(".ranks-{:08x}{:08x}", random(), random());
    files.create(join_path(folder_, name_))->close();
  }
  ~Token() {
    try {
      files_.remove(join_path(folder_, name_));
      if (is_new_ && files_.list(folder_).empty()) files_.remove(folder_);
    } catch (const Error&) {  // it says nothing to anybody
    }
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;
  const std::string& name() const { return name_; }

 private:
  Files& files_;
  const std::string folder_;
  std::string name_;
  bool is_new_ = false;
};

bool sees(const Files& files, const std::string& path) {
  const auto until = std::chrono::steady_clock::now() + kSeen;
  while (!files.exists(path)) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

}  // namespace

std::pair<std::string, std::string> program_fact() {
  std::string text = fmt::format("octet {}", OCTET_VERSION);
  try {
    const auto file = posix_files().open("/proc/self/exe");
    std::vector<std::byte> piece(size_t{1} << 20);
    Xxh64 hash;
    for (uint64_t at = 0; at < file->size(); at += piece.size()) {
      piece.resize(std::min<uint64_t>(piece.size(), file->size() - at));
      file->read_at(at, piece);
      hash.update(piece);
    }
    text += fmt::format(" ({:016x})", hash.digest());
  } catch (const Error&) {  // /proc is not mounted: the version must do
  }
  return {"program", text};
}

void expect_same(Group& group, const Facts& facts) {
  const std::string text = joined(facts);
  const std::vector<uint64_t> all = gather_value(&group, hash_of(text));
  if (std::ranges::count(all, all[0]) == group.size()) return;
  const std::string of_root = text_of_root(group, text);
  if (of_root != text) throw_difference(separated(of_root), facts);
  gather_value(&group, 0);  // which the other rank's error ends
}

void expect_shared_folder(Group& group, Files& files, const std::string& folder) {
  if (group.rank() == 0) {
    const Token token(files, folder);
    text_of_root(group, token.name());
    gather_value(&group, 0);
    return;
  }
  const std::string name = text_of_root(group, "");
  if (!sees(files, join_path(folder, name))) {
    throw Error(ErrorCode::io,
                "[out] expected the folder '{}' to be the same for all ranks, but what rank 0 "
                "writes there is not seen here (several hosts need a shared file system)",
                folder);
  }
  gather_value(&group, 0);
}

}  // namespace octet
