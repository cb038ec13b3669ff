#include "golden/sums/npz.h"

#include <zlib.h>

#include <fstream>
#include <iterator>

namespace octet::test {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("npz: " + what);
}

template <typename T>
T field(const std::string& bytes, size_t at) {
  T value;
  if (at + sizeof(T) > bytes.size()) fail("the file ends early");
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::string inflated(const std::string& bytes, size_t n_bytes) {
  std::string result(n_bytes, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("no memory");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(n_bytes);
  const int status = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (status != Z_STREAM_END || stream.avail_out != 0) fail("a member does not unpack");
  return result;
}

// The bytes of a matrix whose columns lie one behind the other.
std::string by_row(const NpzArray& array) {
  if (array.shape.size() != 2) fail("an array by column is no matrix");
  const auto rows = static_cast<size_t>(array.shape[0]), cols = static_cast<size_t>(array.shape[1]);
  const size_t each = array.bytes.size() / (rows * cols);
  std::string bytes;
  for (size_t i = 0; i < rows * cols; ++i)
    bytes += array.bytes.substr((i % cols * rows + i / cols) * each, each);
  return bytes;
}

NpzArray parse_npy(const std::string& bytes) {
  if (bytes.compare(0, 6, "\x93NUMPY") != 0) fail("a member is no array");
  const size_t begin = bytes[6] == 1 ? 10 : 12;
  const size_t size = begin == 10 ? field<uint16_t>(bytes, 8) : field<uint32_t>(bytes, 8);
  const std::string header = bytes.substr(begin, size);
  const bool by_column = header.find("'fortran_order': True") != std::string::npos;
  const auto after = [&](const std::string& key) { return header.find(key) + key.size(); };
  NpzArray array;
  const size_t type = after("'descr': '"), shape = after("'shape': (");
  array.type = header.substr(type, header.find('\'', type) - type);
  const size_t end = header.find(')', shape);
  for (size_t at = shape; at < end; at = header.find_first_of(",)", at) + 1) {
    const size_t digit = header.find_first_of("0123456789", at);
    if (digit < end) array.shape.push_back(std::stoll(header.substr(digit, end - digit)));
  }
  array.bytes = bytes.substr(begin + size);
  if (by_column) array.bytes = by_row(array);
  return array;
}

}  // namespace

Npz read_npz(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t last = bytes.rfind("PK\x05\x06");
  if (last == std::string::npos) fail(path + " has no directory");
  Npz arrays;
  size_t at = field<uint32_t>(bytes, last + 16);
  for (int n = field<uint16_t>(bytes, last + 10); n > 0; --n) {
    const auto packed = field<uint32_t>(bytes, at + 20), unpacked = field<uint32_t>(bytes, at + 24);
    const size_t n_name = field<uint16_t>(bytes, at + 28);
    const size_t more = field<uint16_t>(bytes, at + 30) + field<uint16_t>(bytes, at + 32);
    const size_t local = field<uint32_t>(bytes, at + 42);
    const std::string name = bytes.substr(at + 46, n_name);
    const size_t data =
        local + 30 + field<uint16_t>(bytes, local + 26) + field<uint16_t>(bytes, local + 28);
    const std::string member = bytes.substr(data, packed);
    const bool is_stored = field<uint16_t>(bytes, at + 10) == 0;
    arrays[name.substr(0, name.rfind(".npy"))] =
        parse_npy(is_stored ? member : inflated(member, unpacked));
    at += 46 + n_name + more;
  }
  return arrays;
}

}  // namespace octet::test
