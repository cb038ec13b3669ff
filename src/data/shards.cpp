#include "data/shards.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/output_folder.h"
#include "base/parse_text.h"
#include "data/numpy_header.h"

namespace octet {
namespace {

using Element = ArrayLayout::Element;

uint64_t element_bytes(Element element) {
  return element == Element::u16 ? 2 : 4;
}

ArrayLayout numpy_layout(const FileReader& file) {
  const NumpyHeader header = read_numpy_header(file);
  if (header.shape.size() != 1) {
    throw Error(ErrorCode::bad_data, "[shard] {}: expected one dimension, got ({})", file.path(),
                fmt::join(header.shape, ","));
  }
  if (header.by_column)
    throw Error(ErrorCode::bad_data, "[shard] {}: 'fortran_order' must be False, got True",
                file.path());
  const int64_t length = header.shape[0];
  ArrayLayout layout{Element::u16, header.offset, length};
  if (header.descr == "<u4") {
    layout.element = Element::u32;
  } else if (header.descr == "<i4") {
    layout.element = Element::i32;
  } else if (header.descr != "<u2") {
    throw Error(ErrorCode::bad_data, "[shard] {}: expected elements <u2, <u4 or <i4, got {}",
                file.path(), header.descr);
  }
  const uint64_t n_data = file.size() - header.offset, width = element_bytes(layout.element);
  if (n_data % width != 0 || n_data / width != static_cast<uint64_t>(length)) {
    throw Error(ErrorCode::bad_data, "[shard] {}: expected {} elements of {} bytes, got {} bytes",
                file.path(), length, width, n_data);
  }
  return layout;
}

class ShardSource : public TokenSource {
 public:
  ShardSource(const Files& files, std::string path, const ShardOptions& options)
      : files_(files),
        path_(std::move(path)),
        options_(options),
        layout_(read_layout(files, path_, options)) {
    if (path_.ends_with(".npy")) read_ends();
  }

  int64_t n_tokens() const override { return layout_.n_tokens; }

  // Size and both ends: reading terabytes to notice a change inside would cost more than it
  // gains.
  uint64_t identity() const override {
    constexpr uint64_t kEnd = 1 << 16;
    const auto file = files_.open(path_);
    Xxh64 hash;
    const uint64_t n_bytes = file->size();
    hash.add(n_bytes);
    std::vector<std::byte> part(std::min(kEnd, n_bytes));
    for (const uint64_t at : {uint64_t{0}, n_bytes - part.size()}) {
      file->read_at(at, part);
      hash.update(part);
    }
    hash.update(ends_);
    return hash.digest();
  }

  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> starts) const override {
    if (tokens.empty()) return;
    const auto file = files_.open(path_);
    read_tokens(*file, first, tokens);
    flag_starts(ends_, first, starts);
    if (first == 0) starts[0] = 1;
    if (!ends_.empty() || !options_.eos) return;
    for (size_t i = 1; i < tokens.size(); ++i) starts[i] = tokens[i - 1] == *options_.eos;
    if (first > 0) {
      int32_t before = 0;
      read_tokens(*file, first - 1, std::span(&before, 1));
      starts[0] = before == *options_.eos;
    }
  }

 private:
  // NAME.ends beside NAME.npy: where its documents end, as 64-bit numbers.
  void read_ends() {
    const std::string path = path_.substr(0, path_.size() - 4) + ".ends";
    if (!files_.exists(path)) return;
    const std::vector<std::byte> bytes = files_.read_bytes(path);
    ends_.resize(bytes.size() / sizeof(int64_t));
    std::memcpy(ends_.data(), bytes.data(), ends_.size() * sizeof(int64_t));
    const bool ascends =
        std::adjacent_find(ends_.begin(), ends_.end(), std::greater_equal<>()) == ends_.end();
    if (bytes.size() % sizeof(int64_t) != 0 || !ascends || ends_.empty() || ends_.front() <= 0 ||
        ends_.back() != layout_.n_tokens) {
      throw Error(ErrorCode::bad_data,
                  "[shard] {}: expected ascending ends of documents, the last {}, got others", path,
                  layout_.n_tokens);
    }
  }

  void read_tokens(const FileReader& file, int64_t first, std::span<int32_t> tokens) const {
    const uint64_t width = element_bytes(layout_.element);
    // The codes land in the upper part of the result, from where they widen in ascending order.
    const auto raw = std::as_writable_bytes(tokens).last(tokens.size() * width);
    file.read_at(layout_.offset + static_cast<uint64_t>(first) * width, raw);
    const uint32_t bound = options_.vocab > 0 ? static_cast<uint32_t>(options_.vocab) : 1u << 31;
    for (size_t i = 0; i < tokens.size(); ++i) {
      uint32_t id = 0;
      std::memcpy(&id, raw.data() + i * width, width);
      if (id >= bound) {
        const int64_t got =
            layout_.element == Element::i32 ? static_cast<int32_t>(id) : int64_t{id};
        throw Error(ErrorCode::bad_data, "[shard] {}: token {} must be from 0 to {}, got {}", path_,
                    first + static_cast<int64_t>(i), bound - 1, got);
      }
      tokens[i] = static_cast<int32_t>(id);
    }
  }

  const Files& files_;
  std::string path_;
  ShardOptions options_;
  ArrayLayout layout_;
  std::vector<int64_t> ends_;
};

}  // namespace

bool is_shard_name(std::string_view path) {
  return path.ends_with(".npy") || path.ends_with(".bin");
}

ArrayLayout read_layout(const Files& files, const std::string& path, const ShardOptions& options) {
  const auto file = files.open(path);
  if (path.ends_with(".npy") && has_numpy_magic(*file)) return numpy_layout(*file);
  const bool is_wide = options.width == TokenWidth::u32 ||
                       (options.width == TokenWidth::infer && options.vocab > 65536);
  ArrayLayout layout{is_wide ? Element::u32 : Element::u16, 0, 0};
  const uint64_t width = element_bytes(layout.element);
  if (file->size() % width != 0) {
    throw Error(ErrorCode::bad_data, "[shard] {}: expected a multiple of {} bytes, got {}", path,
                width, file->size());
  }
  layout.n_tokens = static_cast<int64_t>(file->size() / width);
  return layout;
}

std::shared_ptr<const TokenSource> shard_source(const Files& files, const std::string& path,
                                                const ShardOptions& options) {
  return std::make_shared<ShardSource>(files, path, options);
}

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
  append_narrow(ids, width_, bytes_);
  ends_.push_back(n_tokens());
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
  put(base + std::string(kEnds), std::array{as_bytes(ends_)});
  put(base + std::string(kTokens), std::array{as_bytes(header), as_bytes(bytes_)});
  bytes_.clear();
  ends_.clear();
}

std::optional<int64_t> shard_index(std::string_view name) {
  if (!name.starts_with(kStart)) return std::nullopt;
  name.remove_prefix(kStart.size());
  const size_t n_digits = std::min(name.find('.'), name.size());
  const auto index = parse_number<int64_t>(name.substr(0, n_digits));
  const std::string_view ending = name.substr(n_digits);
  const bool is_shard =
      index && *index >= 0 && n_digits >= 5 && (ending == kTokens || ending == kEnds);
  return is_shard ? index : std::nullopt;
}

}  // namespace octet
