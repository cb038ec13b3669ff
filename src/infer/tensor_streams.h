// Weights on their way from files into files. A tensor is a declaration and a reader of ranges of
// its elements; what becomes of it on the way (dequantized, merged, in another order) is a reader
// made of a reader; and its end, here and in infer/matrix_quantizer.h, gives the bytes of a file in
// pieces: copied, rounded or quantized. No whole tensor is held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/model_files.h"
#include "io/safetensors.h"

namespace octet {

// Elements [first, first + out.size()) of a tensor, row-major.
using ReadValues = std::function<void(int64_t first, std::span<float> out)>;
// Its bytes.
using ReadBytes = std::function<void(std::span<std::byte> out, uint64_t first)>;

inline constexpr int64_t kStreamPiece = 512 << 10;  // elements

// Calls take(first, values) for consecutive pieces of n elements.
template <typename Take>
void stream_values(int64_t n, const ReadValues& read, Take&& take) {
  std::vector<float> values;
  for (int64_t first = 0; first < n; first += kStreamPiece) {
    values.resize(static_cast<size_t>(std::min(kStreamPiece, n - first)));
    read(first, values);
    take(first, std::span(values));
  }
}
// The same of bytes.
void stream_bytes(uint64_t n, const ReadBytes& read, const ByteSink& sink);

// Values in f32, BF16 or FP16, rounded to nearest even.
std::vector<std::byte> encode_weights(std::span<const float> values, Dtype dtype);
// The same into `out`, which has their size.
void encode_weights(std::span<const float> values, Dtype dtype, std::span<std::byte> out);

// Throws Error{bad_data} where one of these elements of a tensor of `path`, `first` on, is not
// finite in this type.
void check_finite_values(const std::string& path, const TensorDecl& tensor, int64_t first,
                         std::span<const float> values, Dtype dtype = Dtype::f32);

// False: some of these values may be NaN or Inf.
bool is_surely_finite(Dtype dtype, std::span<const std::byte> bytes);

TensorSource copied(TensorDecl decl, ReadBytes read);
// A tensor of files under another name.
TensorSource copied(const ModelFiles& files, const std::string& stored, std::string name);
// Values in the type of the declaration, as encode_weights() has them.
TensorSource rounded(TensorDecl decl, ReadValues read);

}  // namespace octet
