#include "data/npz.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/parse_text.h"
#include "data/numpy_header.h"

namespace octet {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr uint16_t kStored = 0, kDeflated = 8, kVersion = 20;
constexpr uint16_t kExtra64 = 1;         // lengths and offsets of 64 bits
constexpr uint32_t kIn64 = 0xffffffff;   // such a field stands there
constexpr uint64_t kMaxDeflated = 1032;  // bytes that one can stand for
constexpr std::string_view kSuffix = ".npy";

struct Member {
  std::string name;
  uint16_t method = kStored;
  uint32_t crc = 0;
  uint64_t n_packed = 0, n_bytes = 0, header_at = 0;
};

class Archive {
 public:
  Archive(const Files& files, const std::string& path) : path_(path), file_(files.open(path)) {}

  std::vector<Member> members() const {
    const auto [at, n] = find_directory();
    const std::string directory = read(at, n);
    std::vector<Member> all;
    for (size_t i = 0; i < directory.size();) {
      if (directory.size() - i < kCentralBytes || field<uint32_t>(directory, i) != kCentral)
        bad("damaged: its list of members is not where its end says");
      const size_t n_name = field<uint16_t>(directory, i + 28);
      const size_t n_extra = field<uint16_t>(directory, i + 30);
      const size_t n_all = kCentralBytes + n_name + n_extra + field<uint16_t>(directory, i + 32);
      if (directory.size() - i < n_all) bad("damaged: its list of members ends within one");
      Member member{.name = directory.substr(i + kCentralBytes, n_name),
                    .method = field<uint16_t>(directory, i + 10),
                    .crc = field<uint32_t>(directory, i + 16),
                    .n_packed = field<uint32_t>(directory, i + 20),
                    .n_bytes = field<uint32_t>(directory, i + 24),
                    .header_at = field<uint32_t>(directory, i + 42)};
      if ((field<uint16_t>(directory, i + 8) & 1) != 0)
        bad(fmt::format("{}: encrypted members are not read", member.name));
      read_wide(directory.substr(i + kCentralBytes + n_name, n_extra), member);
      all.push_back(std::move(member));
      i += n_all;
    }
    return all;
  }

  std::string bytes(const Member& member) const {
    const std::string header = read(member.header_at, kLocalBytes);
    if (field<uint32_t>(header, 0) != kLocal)
      bad(fmt::format("{}: damaged: no member begins where it should", member.name));
    const uint64_t at =
        member.header_at + kLocalBytes + field<uint16_t>(header, 26) + field<uint16_t>(header, 28);
    std::string all = unpacked(member, read(at, member.n_packed));
    const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(all.data()), all.size());
    if (sum != member.crc)
      bad(fmt::format("{}: damaged: its bytes have another CRC-32", member.name));
    return all;
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    throw Error(ErrorCode::bad_data, "{}: {}", path_, what);
  }
  template <typename T>
  static T field(const std::string& bytes, size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
  std::string read(uint64_t at, uint64_t n) const {
    if (at > file_->size() || n > file_->size() - at) bad("damaged: the file ends within it");
    std::string all(n, '\0');
    file_->read_at(at, all);
    return all;
  }

  // Place and length of the list of members.
  std::pair<uint64_t, uint64_t> find_directory() const {
    constexpr uint64_t kMaxComment = 0xffff;
    const uint64_t n = std::min(file_->size(), kEndBytes + kMaxComment);
    const uint64_t begin = file_->size() - n;
    const std::string last = read(begin, n);
    const size_t at = last.rfind("PK\x05\x06");
    if (at == last.npos || last.size() - at < kEndBytes)
      bad("expected a .npz file (a zip archive), got something else");
    std::pair<uint64_t, uint64_t> found = {field<uint32_t>(last, at + 16),
                                           field<uint32_t>(last, at + 12)};
    constexpr uint64_t kLocatorBytes = 20, kEnd64Bytes = 56;
    if (begin + at < kLocatorBytes) return found;
    const std::string locator = read(begin + at - kLocatorBytes, kLocatorBytes);
    if (field<uint32_t>(locator, 0) != kLocator64) return found;
    const std::string end = read(field<uint64_t>(locator, 8), kEnd64Bytes);
    if (field<uint32_t>(end, 0) != kEnd64) bad("damaged: its end is not where it should be");
    return {field<uint64_t>(end, 48), field<uint64_t>(end, 40)};
  }

  // ZIP64: the fields that are kIn64, in this order.
  void read_wide(const std::string& extra, Member& member) const {
    for (size_t i = 0; i + 4 <= extra.size();) {
      const size_t end = i + 4 + field<uint16_t>(extra, i + 2);
      if (field<uint16_t>(extra, i) == kExtra64) {
        size_t at = i + 4;
        for (uint64_t* wide : {&member.n_bytes, &member.n_packed, &member.header_at}) {
          if (*wide != kIn64) continue;
          if (at + 8 > std::min(end, extra.size()))
            bad(fmt::format("{}: damaged: a length is missing", member.name));
          *wide = field<uint64_t>(extra, at);
          at += 8;
        }
      }
      i = end;
    }
  }

  std::string unpacked(const Member& member, std::string packed) const {
    const bool is_stored = member.method == kStored;
    if (!is_stored && member.method != kDeflated)
      bad(fmt::format("{}: expected a member that is stored or deflated, got method {}",
                      member.name, member.method));
    if (is_stored ? member.n_bytes != packed.size() : member.n_bytes / kMaxDeflated > packed.size())
      bad(fmt::format("{}: damaged: {} bytes cannot be {}", member.name, packed.size(),
                      member.n_bytes));
    if (is_stored) return packed;
    std::string all(member.n_bytes, '\0');
    z_stream stream = {};
    CHECK(inflateInit2(&stream, -15) == Z_OK);
    constexpr size_t kPart = size_t{1} << 30;  // the library counts in 32 bits
    int status = Z_OK;
    for (size_t from = 0, to = 0; status == Z_OK;) {
      stream.next_in = reinterpret_cast<Bytef*>(packed.data()) + from;
      stream.next_out = reinterpret_cast<Bytef*>(all.data()) + to;
      const size_t n_in = std::min(kPart, packed.size() - from);
      const size_t n_out = std::min(kPart, all.size() - to);
      stream.avail_in = static_cast<uInt>(n_in);
      stream.avail_out = static_cast<uInt>(n_out);
      status = inflate(&stream, Z_NO_FLUSH);
      from += n_in - stream.avail_in;
      to += n_out - stream.avail_out;
      if (status == Z_STREAM_END && to != all.size()) status = Z_DATA_ERROR;
    }
    inflateEnd(&stream);
    if (status != Z_STREAM_END) bad(fmt::format("{}: damaged: not what was packed", member.name));
    return all;
  }

  std::string path_;
  std::unique_ptr<FileReader> file_;
};

// Elements of a matrix by column, by row.
std::string by_row(const std::string& bytes, const std::vector<int64_t>& shape, size_t width) {
  std::string all(bytes.size(), '\0');
  std::vector<int64_t> index(shape.size(), 0);
  for (size_t to = 0; to < bytes.size(); to += width) {
    size_t from = 0;
    for (size_t axis = shape.size(); axis-- > 0;)
      from = from * static_cast<size_t>(shape[axis]) + static_cast<size_t>(index[axis]);
    std::memcpy(all.data() + to, bytes.data() + from * width, width);
    for (size_t axis = shape.size(); axis-- > 0 && ++index[axis] == shape[axis];) index[axis] = 0;
  }
  return all;
}

NumpyArray parse_array(const std::string& file, const std::string& name) {
  const auto expect = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(ErrorCode::bad_data, "{}: {}", name, what);
  };
  expect(has_numpy_magic(file), "expected a .npy file");
  const NumpyHeader header = parse_numpy_header(file, name);
  const auto width = parse_number<size_t>(
      std::string_view(header.descr).substr(std::min<size_t>(2, header.descr.size())));
  expect(width && *width > 0 && *width <= 8 && header.descr.find_first_of("<|") == 0 &&
             std::string_view("fiub").find(header.descr[1]) != std::string_view::npos,
         "expected little-endian numbers, got type " + header.descr);
  uint64_t n = *width;
  for (const int64_t length : header.shape)
    expect(!__builtin_mul_overflow(n, static_cast<uint64_t>(length), &n), "its shape is too large");
  expect(n == file.size() - header.offset,
         fmt::format("expected {} bytes by its shape, got {}", n, file.size() - header.offset));
  std::string bytes = file.substr(header.offset);
  if (header.by_column) bytes = by_row(bytes, header.shape, *width);
  return {header.descr, header.shape, std::move(bytes)};
}

class Writer {
 public:
  explicit Writer(FileWriter& file) : file_(file) {}

  void put(const std::string& name, const NumpyArray& array) {
    const std::string begin = numpy_header(array.descr, array.shape);
    uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(begin.data()), begin.size());
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(array.bytes.data()), array.bytes.size());
    const std::string member = name + std::string(kSuffix);
    const auto n_bytes = static_cast<uint32_t>(begin.size() + array.bytes.size());
    // The fields that a member's header and its place in the list have in common.
    std::string common;
    constexpr uint16_t kFlags = 0, kTime = 0,
                       kDate = 0x21;  // 1980-01-01: equal arrays, equal files
    for (const uint16_t field : {kVersion, kFlags, kStored, kTime, kDate}) add(common, field);
    for (const uint32_t field : {static_cast<uint32_t>(crc), n_bytes, n_bytes}) add(common, field);
    add(common, static_cast<uint16_t>(member.size()));
    add(common, uint16_t{0});  // no extra fields

    add(directory_, kCentral);
    add(directory_, kVersion);
    directory_ += common;
    for (int i = 0; i < 3; ++i) add(directory_, uint16_t{0});  // comment, disk, kind
    add(directory_, uint32_t{0});
    add(directory_, static_cast<uint32_t>(at_));
    directory_ += member;
    ++n_members_;

    std::string header;
    add(header, kLocal);
    write(header + common + member + begin);
    write(array.bytes);
  }

  void close() {
    std::string end;
    add(end, kEnd);
    for (const uint16_t field : {uint16_t{0}, uint16_t{0}, n_members_, n_members_}) add(end, field);
    add(end, static_cast<uint32_t>(directory_.size()));
    add(end, static_cast<uint32_t>(at_));
    add(end, uint16_t{0});
    write(directory_ + end);
  }

 private:
  template <typename T>
  static void add(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void write(const std::string& bytes) {
    file_.write(as_bytes(bytes));
    at_ += bytes.size();
  }

  FileWriter& file_;
  std::string directory_;
  uint64_t at_ = 0;
  uint16_t n_members_ = 0;
};

}  // namespace

NumpyArrays read_npz(const Files& files, const std::string& path) {
  const Archive archive(files, path);
  NumpyArrays arrays;
  for (const Member& member : archive.members()) {
    std::string name = member.name;
    if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
    const std::string where = fmt::format("{}: {}", path, member.name);
    if (!arrays.emplace(name, parse_array(archive.bytes(member), where)).second)
      throw Error(ErrorCode::bad_data, "{}: comes twice", where);
  }
  return arrays;
}

void write_npz(Files& files, const std::string& path, const NumpyArrays& arrays) {
  constexpr uint64_t kMaxBytes = kIn64, kMaxMembers = 0xfffe;
  uint64_t n_bytes = 0;
  for (const auto& [name, array] : arrays) n_bytes += array.bytes.size() + 2 * name.size() + 512;
  if (n_bytes > kMaxBytes || arrays.size() > kMaxMembers) {
    throw Error(ErrorCode::invalid_argument,
                "{}: expected at most 4 GiB in {} arrays, got {} bytes in {}", path, kMaxMembers,
                n_bytes, arrays.size());
  }
  write_output(files, path, [&](FileWriter& file) {
    Writer writer(file);
    for (const auto& [name, array] : arrays) writer.put(name, array);
    writer.close();
  });
}

}  // namespace octet
