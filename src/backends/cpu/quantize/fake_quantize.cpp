#include "backends/cpu/quantize/fake_quantize.h"

#include <algorithm>
#include <array>

#include "backends/cpu/codec/kernels.h"

namespace octet::cpu {
namespace {

constexpr int64_t kPiece = 1024;  // elements whose quantized data lie on the stack
constexpr int64_t kRowsAtOnce = 8;

}  // namespace

void fake_quantize(const Quantizer& quantizer, RowShape shape, const float* x, float* y,
                   ThreadPool& pool) {
  const Codec codec = simd_codec(quantizer.format);
  const bool is_row = quantizer.granularity.kind == Granularity::Kind::row;
  const int64_t group = is_row ? shape.cols : quantizer.granularity.size;
  for_blocks(pool, shape.rows, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
    std::array<uint8_t, kPiece> q;
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < shape.cols; c += group) {
        const int64_t first = r * shape.cols + c, n = std::min(group, shape.cols - c);
        const octet::Amax all = octet::amax(std::span(x + first, static_cast<size_t>(n)));
        const float scale = scale_from_amax(quantizer, all.value), inv_scale = 1.0f / scale;
        for (int64_t i = first; i < first + n; i += kPiece) {
          const auto n_piece = static_cast<size_t>(std::min(kPiece, first + n - i));
          codec.encode_f32(x + i, n_piece, inv_scale, q.data());
          codec.decode_f32(q.data(), n_piece, scale, y + i);
        }
      }
    }
  });
}

}  // namespace octet::cpu
