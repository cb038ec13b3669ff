#include "io/checkpoint_marker.h"

#include <algorithm>
#include <future>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/parse_text.h"
#include "io/in_a_thread.h"

namespace octet {
namespace {

constexpr uint64_t kMaxMarkerBytes = 1 << 16;

constexpr const char *kXxh = "xxh64", *kSum = "sum61";

FileMark parse_mark(const JsonObject& entry, bool is_sum, const std::string& where) {
  FileMark mark{.n_bytes = entry.unsigned_integer("bytes")};
  const std::string hex = entry.string(is_sum ? kSum : kXxh);
  const auto hash = parse_number<uint64_t>(hex, 16);
  if (hex.size() != 16 || !hash) {
    throw Error(ErrorCode::bad_data, "[checkpoint] {}: expected 16 hexadecimal digits, got '{}'",
                where, hex);
  }
  if (is_sum) {
    mark.sum61 = hash;
  } else {
    mark.xxh64 = *hash;
  }
  return mark;
}

class MarkingWriter : public FileWriter {
 public:
  explicit MarkingWriter(FileWriter& under) : under_(under) {}
  void write(std::span<const std::byte> bytes) override {
    hash_beside(
        bytes.size(), [&] { hash_.update(bytes); }, [&] { under_.write(bytes); });
    n_bytes_ += bytes.size();
  }
  void sync() override { under_.sync(); }
  void close() override { under_.close(); }
  FileMark mark() const { return {.n_bytes = n_bytes_, .xxh64 = hash_.digest()}; }

 private:
  FileWriter& under_;
  Xxh64 hash_;
  uint64_t n_bytes_ = 0;
};

}  // namespace

std::string marker_to_json(const Marker& marker) {
  Json files = Json::object();
  for (const auto& [name, mark] : marker) {
    files[name] = {
        {"bytes", mark.n_bytes},
        {mark.sum61 ? kSum : kXxh, fmt::format("{:016x}", mark.sum61.value_or(mark.xxh64))}};
  }
  return Json{{"format", "octet-complete"}, {"files", files}}.dump(1) + "\n";
}

Marker parse_marker(const std::string& text, const std::string& where) {
  const Json root = parse_json(text, where);
  const JsonObject json(root, where);
  if (json.string("format") != "octet-complete") {
    throw Error(ErrorCode::bad_data, "[checkpoint] {}: 'format' must be octet-complete, got '{}'",
                where, json.string("format"));
  }
  const JsonObject files = json.object("files");
  Marker marker;
  for (const auto& item : json.at("files").items()) {
    if (std::ranges::find(kMarkedFiles, item.key()) == std::end(kMarkedFiles)) {
      throw Error(ErrorCode::bad_data, "[checkpoint] {}: expected files of a checkpoint, got '{}'",
                  where, item.key());
    }
    marker[item.key()] = parse_mark(files.object(item.key()), item.value().contains(kSum), where);
  }
  return marker;
}

Marker read_marker(const Files& files, const std::string& path) {
  const uint64_t n_bytes = files.size(path);
  if (n_bytes > kMaxMarkerBytes) {
    throw Error(ErrorCode::bad_data, "[checkpoint] '{}': expected at most {} bytes, got {}", path,
                kMaxMarkerBytes, n_bytes);
  }
  return parse_marker(files.read_text(path), path);
}

FileMark write_marked(Files& files, const std::string& path,
                      const std::function<void(FileWriter&)>& write) {
  const auto file = files.create(path);
  MarkingWriter marking(*file);
  write(marking);
  file->sync();
  file->close();
  verify_size(files, path, marking.mark());
  return marking.mark();
}

void verify_size(const Files& files, const std::string& path, const FileMark& mark) {
  const uint64_t n_bytes = files.size(path);
  if (n_bytes != mark.n_bytes) {
    throw Error(ErrorCode::bad_data, "[checkpoint] '{}': expected {} bytes, got {}", path,
                mark.n_bytes, n_bytes);
  }
}

constexpr uint64_t kBlockBytes = 4 << 20;

void verify_hash(const Files& files, const std::string& path, const FileMark& mark) {
  const auto file = files.open(path);
  // One block is read while the one before is hashed.
  std::vector<std::byte> blocks[2];
  for (auto& block : blocks) block.resize(std::min<uint64_t>(kBlockBytes, file->size()));
  const auto read = [&](uint64_t index) {
    const uint64_t at = index * kBlockBytes;
    const auto part = std::span(blocks[index % 2])
                          .first(at >= file->size() ? 0 : std::min(kBlockBytes, file->size() - at));
    file->read_at(at, part);
    return part;
  };
  Xxh64 xxh64;
  PositionalHash sum61;
  std::span<std::byte> part = read(0);
  for (uint64_t index = 1; !part.empty(); ++index) {
    auto next = std::async(kInAThread, read, index);
    if (mark.sum61) {
      sum61.update((index - 1) * kBlockBytes, part);
    } else {
      xxh64.update(part);
    }
    part = next.get();
  }
  const uint64_t expected = mark.sum61.value_or(mark.xxh64);
  const uint64_t got = mark.sum61 ? sum61.digest() : xxh64.digest();
  if (got != expected) {
    throw Error(ErrorCode::bad_data, "[checkpoint] '{}': expected {} {:016x}, got {:016x}", path,
                mark.sum61 ? kSum : kXxh, expected, got);
  }
}

}  // namespace octet
