#include "data/npz.h"

#include <gtest/gtest.h>

#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_npz_test {
namespace {

using test::error_of;
using test::ScratchFolder;

template <typename T>
NumpyArray array(const std::string& descr, const std::vector<int64_t>& shape,
                 const std::vector<T>& values) {
  return {descr, shape, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, text.npos) << what;
  return at == text.npos ? text : text.replace(at, what.size(), by);
}

const NumpyArrays kArrays = {{"a/b", array<float>("<f4", {2, 3}, {1, -2, 3.5f, 4, 5, 6})},
                             {"none", array<int32_t>("<i4", {0, 7}, {})},
                             {"scalar", array<uint8_t>("|u1", {}, {200})}};

std::string written(const ScratchFolder& folder) {
  write_npz(posix_files(), folder / "w.npz", kArrays);
  return posix_files().read_text(folder / "w.npz");
}

TEST(Npz, what_is_written_is_read) {
  const ScratchFolder folder;
  const std::string bytes = written(folder);
  const NumpyArrays read = read_npz(posix_files(), folder / "w.npz");
  ASSERT_EQ(read.size(), kArrays.size());
  for (const auto& [name, expected] : kArrays) {
    EXPECT_EQ(read.at(name).descr, expected.descr) << name;
    EXPECT_EQ(read.at(name).shape, expected.shape) << name;
    EXPECT_EQ(read.at(name).bytes, expected.bytes) << name;
  }
  EXPECT_EQ(written(folder), bytes);  // equal arrays, equal files
  // An archive may have a comment behind.
  const std::string commented = bytes.substr(0, bytes.size() - 2) + std::string("\3\0abc", 5);
  EXPECT_EQ(read_npz(posix_files(), folder.put("c.npz", commented)).size(), kArrays.size());
}

TEST(Npz, arrays_by_column_come_by_row) {
  const ScratchFolder folder;
  const std::vector<int16_t> by_row = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // [2, 3, 2]
  const std::vector<int16_t> by_column = {1, 7, 3, 9, 5, 11, 2, 8, 4, 10, 6, 12};
  write_npz(posix_files(), folder / "w.npz", {{"x", array("<i2", {2, 3, 2}, by_column)}});
  std::string bytes = posix_files().read_text(folder / "w.npz");
  // The word is as long as the one that it replaces, so that the header keeps its length; the CRC
  // is adjusted below to what the reader says it found.
  bytes = replaced(bytes, "'fortran_order': False", "'fortran_order': True ");
  const std::string path = folder.put("f.npz", bytes);
  EXPECT_EQ(error_of([&] { read_npz(posix_files(), path); }, folder.path()),
            "DIR/f.npz: x.npy: damaged: its bytes have another CRC-32");
  const size_t member = bytes.find("\x93NUMPY"), n = 128 + by_column.size() * 2;
  uint32_t crc = 0xffffffff;  // by its definition, a bit at a time
  for (size_t i = member; i < member + n; ++i) {
    crc ^= static_cast<uint8_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  crc = ~crc;
  const std::string sum(reinterpret_cast<const char*>(&crc), 4);
  bytes.replace(14, 4, sum).replace(bytes.find("PK\1\2") + 16, 4, sum);
  const NumpyArrays read = read_npz(posix_files(), folder.put("f.npz", bytes));
  EXPECT_EQ(read.at("x").values<int16_t>(), by_row);
}

TEST(Npz, what_is_no_such_archive_is_refused_with_one_line) {
  const ScratchFolder folder;
  const std::string good = written(folder);
  const size_t list = good.find("PK\1\2");
  std::string packed = good, encrypted = good, longer = good;
  packed[list + 10] = 12;
  encrypted[list + 8] = 1;
  longer[list + 24] = static_cast<char>(longer[list + 24] + 1);
  const struct {
    std::string bytes, error;
  } cases[] = {
      {"", "expected a .npz file (a zip archive), got something else"},
      {"\x93NUMPY", "expected a .npz file (a zip archive), got something else"},
      {good.substr(0, list), "expected a .npz file (a zip archive), got something else"},
      {good.substr(40), "damaged: the file ends within it"},
      {std::string(40, 'x') + good, "damaged: its list of members is not where its end says"},
      {packed, "a/b.npy: expected a member that is stored or deflated, got method 12"},
      {encrypted, "a/b.npy: encrypted members are not read"},
      {longer, "a/b.npy: damaged: 152 bytes cannot be 153"},
      {replaced(good, "PK\3\4", "PK\3\5"), "a/b.npy: damaged: no member begins where it should"},
      {replaced(good, "'<f4'", "'>f4'"), "a/b.npy: damaged: its bytes have another CRC-32"},
  };
  for (const auto& [bytes, error] : cases) {
    const std::string path = folder.put("x.npz", bytes);
    EXPECT_EQ(error_of([&] { read_npz(posix_files(), path); }, folder.path()),
              "DIR/x.npz: " + error);
  }
  const struct {
    NumpyArray array;
    std::string error;
  } arrays[] = {
      {{">f4", {1}, "abcd"}, "expected little-endian numbers, got type >f4"},
      {{"<c8", {1}, "abcdefgh"}, "expected little-endian numbers, got type <c8"},
      {{"<U1", {1}, "abcd"}, "expected little-endian numbers, got type <U1"},
      {{"|O", {1}, "abcd"}, "expected little-endian numbers, got type |O"},
      {{"<f4", {2}, "abcd"}, "expected 8 bytes by its shape, got 4"},
      {{"<f4", {int64_t{1} << 62, 4}, "abcd"}, "its shape is too large"},
  };
  for (const auto& [array, error] : arrays) {
    write_npz(posix_files(), folder / "y.npz", {{"y", array}});
    EXPECT_EQ(error_of([&] { read_npz(posix_files(), folder / "y.npz"); }, folder.path()),
              "DIR/y.npz: y.npy: " + error);
  }
}

}  // namespace
}  // namespace octet::data_npz_test
