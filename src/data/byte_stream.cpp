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

[[noreturn]] void damaged(const std::string& path, std::string_view kind) {
  throw Error(ErrorCode::bad_data,
              "[data] {}: expected whole {} data, got damaged data or its start", path, kind);
}

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

// Packed bytes, a block at a time.
class Packed {
 public:
  explicit Packed(std::unique_ptr<FileStream> file) : file_(std::move(file)), block_(kBlock) {}
  std::string path() const { return file_->path(); }
  // What is left of the block, refilled when there is nothing; empty: the end.
  std::span<char> rest() {
    if (rest_.empty()) rest_ = std::span(block_).first(file_->read(block_));
    return rest_;
  }
  void drop(size_t n) { rest_ = rest_.subspan(n); }

 private:
  std::unique_ptr<FileStream> file_;
  std::vector<char> block_;
  std::span<char> rest_ = {};
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(Packed packed) : packed_(std::move(packed)) {
    constexpr int kWindowBits = 15, kGzip = 16;
    CHECK(inflateInit2(&state_, kWindowBits + kGzip) == Z_OK);
  }
  ~GzipStream() override { inflateEnd(&state_); }

  size_t read(std::span<char> out) override {
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), kBlock));
    const uInt asked = state_.avail_out;
    while (state_.avail_out == asked) {
      const std::span<char> in = packed_.rest();
      if (in.empty() && !is_within_) return 0;
      if (in.empty()) damaged(packed_.path(), "gzip");
      is_within_ = true;
      state_.next_in = reinterpret_cast<Bytef*>(in.data());
      state_.avail_in = static_cast<uInt>(in.size());
      const int status = inflate(&state_, Z_NO_FLUSH);
      packed_.drop(in.size() - state_.avail_in);
      if (status == Z_STREAM_END) {
        is_within_ = false;
        CHECK(inflateReset(&state_) == Z_OK);
      } else if (status != Z_OK) {
        damaged(packed_.path(), "gzip");
      }
    }
    return asked - state_.avail_out;
  }

 private:
  Packed packed_;
  z_stream state_ = {};
  bool is_within_ = false;
};

class XzStream : public ByteStream {
 public:
  explicit XzStream(Packed packed) : packed_(std::move(packed)) {
    constexpr uint64_t kMemoryLimit = uint64_t{1} << 30;
    CHECK(lzma_stream_decoder(&state_, kMemoryLimit, LZMA_CONCATENATED) == LZMA_OK);
  }
  ~XzStream() override { lzma_end(&state_); }

  size_t read(std::span<char> out) override {
    state_.next_out = reinterpret_cast<uint8_t*>(out.data());
    state_.avail_out = out.size();
    while (state_.avail_out == out.size() && !is_done_) {
      const std::span<char> in = packed_.rest();
      state_.next_in = reinterpret_cast<const uint8_t*>(in.data());
      state_.avail_in = in.size();
      const lzma_ret status = lzma_code(&state_, in.empty() ? LZMA_FINISH : LZMA_RUN);
      packed_.drop(in.size() - state_.avail_in);
      is_done_ = status == LZMA_STREAM_END;
      if (status != LZMA_OK && !is_done_) damaged(packed_.path(), "xz");
    }
    return out.size() - state_.avail_out;
  }

 private:
  Packed packed_;
  lzma_stream state_ = LZMA_STREAM_INIT;
  bool is_done_ = false;
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(Packed packed) : packed_(std::move(packed)), state_(ZSTD_createDCtx()) {
    CHECK(state_ != nullptr);
  }
  ~ZstdStream() override { ZSTD_freeDCtx(state_); }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0) {
      const std::span<char> in = packed_.rest();
      if (in.empty() && !is_within_) return 0;
      ZSTD_inBuffer from{in.data(), in.size(), 0};
      const size_t hint = ZSTD_decompressStream(state_, &to, &from);
      if (ZSTD_isError(hint) || (in.empty() && to.pos == 0)) damaged(packed_.path(), "zstd");
      packed_.drop(from.pos);
      is_within_ = hint != 0;
    }
    return to.pos;
  }

 private:
  Packed packed_;
  ZSTD_DCtx* state_;
  bool is_within_ = false;
};

class Bzip2Stream : public ByteStream {
 public:
  explicit Bzip2Stream(Packed packed) : packed_(std::move(packed)) { begin(); }
  ~Bzip2Stream() override { BZ2_bzDecompressEnd(&state_); }

  size_t read(std::span<char> out) override {
    state_.next_out = out.data();
    state_.avail_out = static_cast<unsigned>(std::min<size_t>(out.size(), kBlock));
    const unsigned asked = state_.avail_out;
    while (state_.avail_out == asked) {
      const std::span<char> in = packed_.rest();
      if (in.empty() && !is_within_) return 0;
      if (in.empty()) damaged(packed_.path(), "bzip2");
      is_within_ = true;
      state_.next_in = in.data();
      state_.avail_in = static_cast<unsigned>(in.size());
      const int status = BZ2_bzDecompress(&state_);
      packed_.drop(in.size() - state_.avail_in);
      if (status != BZ_OK && status != BZ_STREAM_END) damaged(packed_.path(), "bzip2");
      if (status == BZ_STREAM_END) begin_next();
    }
    return asked - state_.avail_out;
  }

 private:
  void begin() { CHECK(BZ2_bzDecompressInit(&state_, /*verbosity=*/0, /*small=*/0) == BZ_OK); }
  // Another stream may follow.
  void begin_next() {
    char* const to = state_.next_out;
    const unsigned left = state_.avail_out;
    BZ2_bzDecompressEnd(&state_);
    state_ = {};
    begin();
    state_.next_out = to;
    state_.avail_out = left;
    is_within_ = false;
  }

  Packed packed_;
  bz_stream state_ = {};
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
  if (!magic.empty()) file->read_at(0, std::as_writable_bytes(std::span(magic)));
  auto stream = std::make_unique<FileStream>(std::move(file));
  if (magic.starts_with("\x1F\x8B")) return std::make_unique<GzipStream>(Packed(std::move(stream)));
  if (magic.starts_with("\xFD"
                        "7zXZ"))
    return std::make_unique<XzStream>(Packed(std::move(stream)));
  if (is_bzip2(magic)) return std::make_unique<Bzip2Stream>(Packed(std::move(stream)));
  if (magic.starts_with("\x28\xB5\x2F\xFD")) {
    return std::make_unique<ZstdStream>(Packed(std::move(stream)));
  }
  if (const std::string path = stream->path(); unpacked_name(path) != path) {
    throw Error(ErrorCode::bad_data, "[data] {}: expected packed data, as its name says, got other",
                path);
  }
  return stream;
}

std::unique_ptr<ByteStream> open_stream(const Files& files, const std::string& path) {
  return open_stream(files.open(path));
}

std::string unpacked_name(const std::string& path) {
  for (const std::string_view ending : {".gz", ".bz2", ".xz", ".zst"}) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

}  // namespace octet
