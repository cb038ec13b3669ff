#include "data/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/output_folder.h"
#include "data/numpy_header.h"

namespace octet {
namespace {

constexpr std::string_view kStart = "shard-", kTokens = ".npy", kEnds = ".ends";

bool holds(const FileReader& file, std::span<const std::span<const std::byte>> parts) {
  uint64_t n_bytes = 0;
  for (const auto part : parts) n_bytes += part.size();
  if (file.size() != n_bytes) return false;
  uint64_t at = 0;
  for (const auto part : parts) {
    std::vector<std::byte> there(part.size());
    file.read_at(at, there);
    if (!std::ranges::equal(there, part)) return false;
    at += part.size();
  }
  return true;
}

}  // namespace

ShardWriter::ShardWriter(Files& files, std::string folder, int64_t vocab)
    : files_(files), folder_(std::move(folder)), width_(vocab <= 65536 ? 2 : 4) {}

void ShardWriter::add_document(std::span<const int32_t> ids) {
  const size_t at = bytes_.size();
  bytes_.resize(at + ids.size() * width_);
  char* to = bytes_.data() + at;
  for (const int32_t id : ids) {
    std::memcpy(to, &id, width_);
    to += width_;
  }
  ends_.push_back(static_cast<uint64_t>(n_tokens()));
}

void ShardWriter::put(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  const EntryKind kind = files_.entry_kind(path);
  if (kind != EntryKind::none) {
    if (kind != EntryKind::file || !holds(*files_.open(path), parts))
      throw_not_replaced("[tokenize] --out", path);
    return;
  }
  write_atomically(files_, path, [&](FileWriter& file) {
    for (const std::span<const std::byte> part : parts) file.write(part);
  });
}

void ShardWriter::close(int64_t index) {
  const std::string base = join_path(folder_, fmt::format("{}{:05}", kStart, index));
  const std::string header = numpy_header(width_ == 2 ? "<u2" : "<u4", {n_tokens()});
  put(base + std::string(kEnds), std::array{std::as_bytes(std::span(ends_))});
  put(base + std::string(kTokens),
      std::array{as_bytes(header), std::as_bytes(std::span<const char>(bytes_))});
  bytes_.clear();
  ends_.clear();
}

std::optional<int64_t> shard_index(std::string_view name) {
  if (!name.starts_with(kStart)) return std::nullopt;
  name.remove_prefix(kStart.size());
  int64_t index = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, index);
  const std::string_view ending(rest, static_cast<size_t>(end - rest));
  const bool is_shard = error == std::errc() && index >= 0 && rest - name.data() >= 5 &&
                        (ending == kTokens || ending == kEnds);
  return is_shard ? std::optional(index) : std::nullopt;
}

}  // namespace octet
