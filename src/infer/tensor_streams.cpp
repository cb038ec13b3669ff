#include "infer/tensor_streams.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "formats/codec.h"
#include "ir/types.h"

namespace octet {
namespace {

// The smallest magnitude that becomes Inf in a type.
float least_overflow(Dtype dtype) {
  if (dtype == Dtype::fp16) return 65520.0f;
  return dtype == Dtype::bf16 ? 0x1.FFp127f : std::numeric_limits<float>::infinity();
}

// The indices of an element, row-major.
Shape place_of(int64_t element, const Shape& shape) {
  Shape place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; element /= shape[axis])
    place[axis] = element % shape[axis];
  return place;
}

// True if an exponent is all ones, by a loop that is vectorized.
template <typename Word, Word kExponent>
bool has_full_exponent(std::span<const std::byte> bytes) {
  uint32_t n = 0;
  for (size_t i = 0; i + sizeof(Word) <= bytes.size(); i += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof(Word));
    n += (word & kExponent) == kExponent ? 1u : 0u;
  }
  return n != 0;
}

}  // namespace

void stream_bytes(uint64_t n, const ReadBytes& read, const ByteSink& sink) {
  constexpr uint64_t kPiece = sizeof(float) * kStreamPiece;
  std::vector<std::byte> bytes;
  for (uint64_t first = 0; first < n; first += kPiece) {
    bytes.resize(std::min(kPiece, n - first));
    read(bytes, first);
    sink(bytes);
  }
}

std::vector<std::byte> encode_weights(std::span<const float> values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(bytes_of(dtype, 1)));
  encode_weights(values, dtype, bytes);
  return bytes;
}

void encode_weights(std::span<const float> values, Dtype dtype, std::span<std::byte> out) {
  CHECK(is_high_precision(dtype));
  CHECK(out.size() == values.size() * static_cast<size_t>(bytes_of(dtype, 1)));
  if (dtype == Dtype::f32) {
    if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  const auto each = [&](auto code_of) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto code = static_cast<uint16_t>(code_of(values[i]));
      std::memcpy(out.data() + 2 * i, &code, 2);
    }
  };
  if (dtype == Dtype::bf16) return each(bf16_from_f32);
  each([](float value) { return encode<Dtype::fp16>(value, Rounding::rne, {.saturate = false}); });
}

bool is_surely_finite(Dtype dtype, std::span<const std::byte> bytes) {
  if (dtype == Dtype::bf16) return !has_full_exponent<uint16_t, 0x7F80u>(bytes);
  if (dtype == Dtype::fp16) return !has_full_exponent<uint16_t, 0x7C00u>(bytes);
  return dtype == Dtype::f32 && !has_full_exponent<uint32_t, 0x7F800000u>(bytes);
}

TensorSource copied(TensorDecl decl, ReadBytes read) {
  const uint64_t n_bytes = decl.n_bytes();
  return {std::move(decl), [n_bytes, read = std::move(read)](const ByteSink& sink) {
            stream_bytes(n_bytes, read, sink);
          }};
}

TensorSource copied(const ModelFiles& files, const std::string& stored, std::string name) {
  TensorDecl decl = files.at(stored);
  decl.name = std::move(name);
  return copied(std::move(decl), [files, stored](std::span<std::byte> out, uint64_t first) {
    files.read(stored, out, first);
  });
}

TensorSource rounded(TensorDecl decl, ReadValues read) {
  const Dtype dtype = native_dtype(decl.stored).value();
  const auto n_elems = static_cast<int64_t>(decl.n_bytes()) / bytes_of(dtype, 1);
  return {std::move(decl), [dtype, n_elems, read = std::move(read)](const ByteSink& sink) {
            stream_values(n_elems, read, [&](int64_t, std::span<const float> values) {
              sink(encode_weights(values, dtype));
            });
          }};
}

void check_finite_values(const std::string& path, const TensorDecl& tensor, int64_t first,
                         std::span<const float> values, Dtype dtype) {
  const float limit = least_overflow(dtype);
  const auto is_bad = [limit](float x) { return !(std::abs(x) < limit); };
  uint32_t n_bad = 0;  // a loop that is vectorized
  for (const float x : values) n_bad += is_bad(x) ? 1u : 0u;
  if (n_bad == 0) return;
  const auto at = std::ranges::find_if(values, is_bad);
  const bool is_finite = std::isfinite(*at);
  throw Error(ErrorCode::bad_data,
              "[weights] {}: element {} of '{}' {}: expected {}, got {}; {} reads it as it is",
              path, to_string(place_of(first + (at - values.begin()), tensor.shape)), tensor.name,
              to_string(tensor.shape),
              is_finite ? fmt::format("what {} holds", dtype_name(dtype)) : "a finite weight", *at,
              "--allow-nonfinite (of a run model.allow_nonfinite)");
}

}  // namespace octet
