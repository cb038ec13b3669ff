#include "data/byte_stream.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace octet {
namespace {

constexpr size_t kBlock = 1 << 18;

class FileStream : public ByteStream {
 public:
  explicit FileStream(std::unique_ptr<FileReader> file) : file_(std::move(file)) {}
  size_t read(std::span<char> out) override {
    const size_t n = std::min<uint64_t>(out.size(), file_->size() - at_);
    if (n > 0) file_->read_at(at_, std::as_writable_bytes(out.first(n)));
    at_ += n;
    return n;
  }
  std::string path() const { return file_->path(); }

 private:
  std::unique_ptr<FileReader> file_;
  uint64_t at_ = 0;
};

// How a stream is after a step of its decoder.
enum class Packed { within, ended, damaged };

// The libraries' streams have fields of the same names. What the call takes and gives is dropped
// from the front of `in` and `out`.
template <typename Stream, typename Call>
auto feed(Stream& stream, std::span<char>& in, std::span<char>& out, const Call& call) {
  const size_t n_room = std::min(out.size(), kBlock);
  stream.next_in = reinterpret_cast<decltype(stream.next_in)>(in.data());
  stream.avail_in = static_cast<decltype(stream.avail_in)>(in.size());
  stream.next_out = reinterpret_cast<decltype(stream.next_out)>(out.data());
  stream.avail_out = static_cast<decltype(stream.avail_out)>(n_room);
  const auto status = call();
  in = in.last(stream.avail_in);
  out = out.subspan(n_room - stream.avail_out);
  return status;
}

struct Gzip {
  static constexpr std::string_view kName = "gzip";
  static constexpr int kWindowBits = 15, kGzip = 16;
  Gzip() { CHECK(inflateInit2(&state, kWindowBits + kGzip) == Z_OK); }
  ~Gzip() { inflateEnd(&state); }
  Packed step(std::span<char>& in, std::span<char>& out) {
    const int status = feed(state, in, out, [&] { return inflate(&state, Z_NO_FLUSH); });
    if (status == Z_STREAM_END) CHECK(inflateReset(&state) == Z_OK);
    return status == Z_STREAM_END ? Packed::ended
           : status == Z_OK       ? Packed::within
                                  : Packed::damaged;
  }
  z_stream state = {};
};

struct Bzip2 {
  static constexpr std::string_view kName = "bzip2";
  Bzip2() { begin(); }
  ~Bzip2() { BZ2_bzDecompressEnd(&state); }
  void begin() { CHECK(BZ2_bzDecompressInit(&state, /*verbosity=*/0, /*small=*/0) == BZ_OK); }
  Packed step(std::span<char>& in, std::span<char>& out) {
    const int status = feed(state, in, out, [&] { return BZ2_bzDecompress(&state); });
    if (status != BZ_STREAM_END) return status == BZ_OK ? Packed::within : Packed::damaged;
    BZ2_bzDecompressEnd(&state);
    state = {};
    begin();
    return Packed::ended;
  }
  bz_stream state = {};
};

// Takes streams that follow each other as one.
struct Xz {
  static constexpr std::string_view kName = "xz";
  static constexpr uint64_t kMemoryLimit = uint64_t{1} << 30;
  Xz() { CHECK(lzma_stream_decoder(&state, kMemoryLimit, LZMA_CONCATENATED) == LZMA_OK); }
  ~Xz() { lzma_end(&state); }
  Packed step(std::span<char>& in, std::span<char>& out) {
    const lzma_action action = in.empty() ? LZMA_FINISH : LZMA_RUN;
    const lzma_ret status = feed(state, in, out, [&] { return lzma_code(&state, action); });
    return status == LZMA_STREAM_END ? Packed::ended
           : status == LZMA_OK       ? Packed::within
                                     : Packed::damaged;
  }
  lzma_stream state = LZMA_STREAM_INIT;
};

struct Zstd {
  static constexpr std::string_view kName = "zstd";
  Zstd() { CHECK(state != nullptr); }
  ~Zstd() { ZSTD_freeDCtx(state); }
  Packed step(std::span<char>& in, std::span<char>& out) {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t hint = ZSTD_decompressStream(state, &to, &from);
    in = in.subspan(from.pos);
    out = out.subspan(to.pos);
    return ZSTD_isError(hint) ? Packed::damaged : hint == 0 ? Packed::ended : Packed::within;
  }
  ZSTD_DCtx* state = ZSTD_createDCtx();
};

// One stream after the other, the packed bytes a block at a time.
template <typename Decoder>
class PackedStream : public ByteStream {
 public:
  explicit PackedStream(std::unique_ptr<FileStream> file)
      : file_(std::move(file)), block_(kBlock) {}
  size_t read(std::span<char> out) override {
    const size_t n_asked = out.size();
    while (out.size() == n_asked) {
      if (rest_.empty()) rest_ = std::span(block_).first(file_->read(block_));
      const bool is_end = rest_.empty();
      if (is_end && !is_within_) return 0;
      const Packed state = decoder_.step(rest_, out);
      is_within_ = state == Packed::within;
      const bool is_cut = is_end && is_within_ && out.size() == n_asked;
      if (state == Packed::damaged || is_cut) {
        throw Error(ErrorCode::bad_data,
                    "[data] {}: expected whole {} data, got damaged data or its start",
                    file_->path(), Decoder::kName);
      }
    }
    return n_asked - out.size();
  }

 private:
  std::unique_ptr<FileStream> file_;
  std::vector<char> block_;
  std::span<char> rest_ = {};
  Decoder decoder_;
  bool is_within_ = false;
};

// A first block, or none, follows the header.
bool is_bzip2(std::string_view magic) {
  const bool has_header = magic.starts_with("BZh") && magic.size() >= 6 && magic[3] >= '1';
  return has_header && (magic.substr(4) == "1A" || magic.substr(4) == "\x17r");
}

}  // namespace

std::unique_ptr<ByteStream> open_stream(std::unique_ptr<FileReader> file) {
  std::string magic(std::min<uint64_t>(6, file->size()), '\0');
  if (!magic.empty()) file->read_at(0, magic);
  auto stream = std::make_unique<FileStream>(std::move(file));
  if (magic.starts_with("\x1F\x8B")) return std::make_unique<PackedStream<Gzip>>(std::move(stream));
  if (magic.starts_with("\xFD"
                        "7zXZ"))
    return std::make_unique<PackedStream<Xz>>(std::move(stream));
  if (is_bzip2(magic)) return std::make_unique<PackedStream<Bzip2>>(std::move(stream));
  if (magic.starts_with("\x28\xB5\x2F\xFD"))
    return std::make_unique<PackedStream<Zstd>>(std::move(stream));
  if (const std::string path = stream->path(); unpacked_name(path).size() < path.size()) {
    throw Error(ErrorCode::bad_data, "[data] {}: expected packed data, as its name says, got other",
                path);
  }
  return stream;
}

std::unique_ptr<ByteStream> open_stream(const Files& files, const std::string& path) {
  return open_stream(files.open(path));
}

std::optional<std::string> read_unpacked(std::unique_ptr<FileReader> file, uint64_t max_bytes) {
  std::string bytes, block(kBlock, '\0');
  bytes.reserve(std::min(file->size(), max_bytes));
  const auto stream = open_stream(std::move(file));
  while (const size_t n = stream->read(block)) {
    if (bytes.size() + n > max_bytes) return std::nullopt;
    bytes.append(block, 0, n);
  }
  return bytes;
}

std::string unpacked_name(const std::string& path) {
  std::string name = path;
  for (char& ch : name) ch = ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch + 'a' - 'A') : ch;
  for (const std::string_view ending : {".gz", ".bz2", ".xz", ".zst"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

}  // namespace octet
