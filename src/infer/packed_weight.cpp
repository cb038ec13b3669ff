#include "infer/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/integer.h"

namespace octet {
namespace {

constexpr int64_t kWord = 4;  // bytes

[[noreturn]] void bad(const ModelFiles& files, const std::string& name, const Shape& expected,
                      std::string_view dtype, const std::string& got) {
  throw Error(ErrorCode::bad_data, "[weights] {}: '{}' must be {} {}, got {}", files.path(), name,
              dtype, to_string(expected), got);
}

}  // namespace

PackedWeight::PackedWeight(const ModelFiles& files, const std::string& packed, const Shape& shape)
    : name_(packed) {
  const std::string module = packed.substr(0, packed.size() - kPackedSuffix.size());
  const StoredTensor& words = files.at(packed);
  const Shape expected = {shape.at(0), ceil_div(shape.at(1), kWord)};
  if (words.stored != SafeDtype::i32 || words.shape != expected) {
    bad(files, packed, expected, "I32",
        fmt::format("{} {}", safe_dtype_name(words.stored), to_string(words.shape)));
  }
  const std::string beside = module + std::string(kPackedShapeSuffix);
  const StoredTensor& extents = files.at(beside);
  std::vector<int64_t> said(2);
  const bool is_pair = extents.stored == SafeDtype::i64 && extents.shape == Shape{2};
  if (is_pair) files.read(beside, std::as_writable_bytes(std::span(said)));
  if (!is_pair || said != shape) {
    bad(files, beside, shape, "the extents",
        is_pair ? to_string(said)
                : fmt::format("{} {}", safe_dtype_name(extents.stored), to_string(extents.shape)));
  }
  static_cast<TensorDecl&>(unpacked_) = tensor_decl(module + ".weight", Dtype::int8, shape);
  unpacked_.dtype = Dtype::int8;
}

void PackedWeight::read(const ModelFiles& files, std::span<std::byte> out, uint64_t first) const {
  const auto cols = static_cast<uint64_t>(unpacked_.shape.at(1));
  const auto stride = static_cast<uint64_t>(ceil_div(unpacked_.shape.at(1), kWord) * kWord);
  if (stride == cols) {
    files.read(name_, out, first);
  } else {
    for (uint64_t i = 0; i < out.size();) {
      const uint64_t row = (first + i) / cols, col = (first + i) % cols;
      const uint64_t n = std::min<uint64_t>(cols - col, out.size() - i);
      files.read(name_, out.subspan(i, n), row * stride + col);
      i += n;
    }
  }
  for (std::byte& code : out) code ^= std::byte{0x80};  // q + 128 to two's complement
}

}  // namespace octet
