#include "data/cached_tokens.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace octet {
namespace {

constexpr uint64_t kCacheMagic = 0x324E4B544354434F;    // "OCTCTKN2"
constexpr uint64_t kEarlierMagic = 0x314E4B544354434F;  // "OCTCTKN1", with names in identities
constexpr size_t kPieceBytes = 1 << 20;

struct Trailer {
  uint64_t magic = kCacheMagic;
  uint64_t key = 0;
  uint64_t width = 0;
  uint64_t n_tokens = 0, n_documents = 0, n_texts = 0;
  uint64_t identity = 0;  // XXH64 of tokens and starts
  uint64_t check = 0;     // of the fields before
};
static_assert(sizeof(Trailer) == 64);

uint64_t check_of(const Trailer& trailer) {
  return xxh64(std::as_bytes(std::span(&trailer, 1)).first(offsetof(Trailer, check)));
}

class CachedSource : public TokenSource {
 public:
  CachedSource(std::unique_ptr<FileReader> file, const Trailer& trailer,
               std::vector<int64_t> starts)
      : file_(std::move(file)), trailer_(trailer), starts_(std::move(starts)) {}
  int64_t n_tokens() const override { return static_cast<int64_t>(trailer_.n_tokens); }
  uint64_t identity() const override { return trailer_.identity; }

  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    const size_t width = trailer_.width;
    // The ids land in the upper part of the result, from where they widen in ascending order.
    const auto raw = std::as_writable_bytes(tokens).last(tokens.size() * width);
    file_->read_at(static_cast<uint64_t>(first) * width, raw);
    widen_tokens(raw.data(), width, tokens);
    flag_starts(starts_, first, flags);
  }

 private:
  std::unique_ptr<FileReader> file_;  // open as long as the run: a new file may take its place
  Trailer trailer_;
  std::vector<int64_t> starts_;
};

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::bad_data, "{}", what);
}

Trailer read_trailer(const FileReader& file) {
  Trailer trailer;
  const uint64_t n_bytes = file.size();
  if (n_bytes < sizeof(trailer)) fail("it is cut short");
  file.read_at(n_bytes - sizeof(trailer), std::as_writable_bytes(std::span(&trailer, 1)));
  const uint64_t n_data = n_bytes - sizeof(trailer);
  if (trailer.magic == kEarlierMagic) fail("it is of an earlier version");
  const bool is_sound =
      trailer.magic == kCacheMagic && trailer.check == check_of(trailer) && trailer.width >= 1 &&
      trailer.width <= 4 && trailer.n_tokens <= n_data / trailer.width &&
      trailer.n_documents <= n_data / sizeof(int64_t) && trailer.n_texts <= INT32_MAX &&
      trailer.n_tokens * trailer.width + trailer.n_documents * sizeof(int64_t) == n_data;
  if (!is_sound) fail("it is damaged");
  return trailer;
}

}  // namespace

CachedText open_cached_tokens(const Files& files, const std::string& path,
                              const CachedTokensHeader& expected) {
  auto file = files.open(path);
  const Trailer trailer = read_trailer(*file);
  if (trailer.key != expected.key) fail("the text has changed since");
  if (trailer.width != static_cast<uint64_t>(expected.width)) fail("it is damaged");
  Xxh64 identity;
  const uint64_t n_data = file->size() - sizeof(trailer);
  std::vector<std::byte> piece;
  for (uint64_t at = 0; at < n_data; at += piece.size()) {
    piece.resize(std::min<uint64_t>(kPieceBytes, n_data - at));
    file->read_at(at, piece);
    identity.update(piece);
  }
  if (identity.digest() != trailer.identity) fail("it is damaged");
  std::vector<int64_t> starts(trailer.n_documents);
  file->read_at(trailer.n_tokens * trailer.width, starts);
  // Anyone can write a file with the right hashes.
  const bool are_sound =
      std::is_sorted(starts.begin(), starts.end()) &&
      (starts.empty() ||
       (starts.front() == 0 && starts.back() <= static_cast<int64_t>(trailer.n_tokens)));
  if (!are_sound) fail("it is damaged");
  const auto n_texts = static_cast<int64_t>(trailer.n_texts);
  return {std::make_shared<CachedSource>(std::move(file), trailer, std::move(starts)), n_texts};
}

CachedTokensWriter::CachedTokensWriter(Files& files, const std::string& path,
                                       const CachedTokensHeader& header)
    : header_(header), file_(files, path) {}

void CachedTokensWriter::add_document(std::span<const int32_t> ids) {
  append_narrow(ids, static_cast<size_t>(header_.width), buffer_);
  starts_.push_back(n_tokens_);
  n_tokens_ += static_cast<int64_t>(ids.size());
  if (buffer_.size() >= kPieceBytes) flush();
}

void CachedTokensWriter::flush() {
  identity_.update(buffer_);
  file_.writer().write(buffer_);
  buffer_.clear();
}

void CachedTokensWriter::close(int64_t n_texts) {
  flush();
  identity_.update(starts_);
  Trailer trailer{.key = header_.key,
                  .width = static_cast<uint64_t>(header_.width),
                  .n_tokens = static_cast<uint64_t>(n_tokens_),
                  .n_documents = starts_.size(),
                  .n_texts = static_cast<uint64_t>(n_texts),
                  .identity = identity_.digest()};
  trailer.check = check_of(trailer);
  file_.writer().write(as_bytes(starts_));
  file_.writer().write(std::as_bytes(std::span(&trailer, 1)));
  file_.writer().sync();
  file_.writer().close();
  file_.put_in_place();
}

}  // namespace octet
