#include "backends/cpu/quantize/quantize_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/codec/codec.h"
#include "base/philox.h"
#include "formats/bf16.h"
#include "formats/full_int8.h"
#include "formats/quantize.h"

namespace octet::cpu {
namespace {

constexpr int64_t kSpan = 1024;  // columns at once, whose values lie on the stack

using Values = std::array<float, kSpan>;

// Columns [col, col + n) of a row, in f32.
const float* read_span(In x, int64_t first, int64_t n, Values& buffer) {
  const In from = offset(x, first);
  if (from.dtype == Dtype::f32) return static_cast<const float*>(from.data);
  convert_span(from, n, {buffer.data(), Dtype::f32});
  return buffer.data();
}

void write_span(Out y, int64_t first, int64_t n, const float* values) {
  const Out to = offset(y, first);
  if (to.dtype == Dtype::f32) {
    std::copy_n(values, n, static_cast<float*>(to.data));
    return;
  }
  auto* bits = static_cast<uint16_t*>(to.data);
  for (int64_t i = 0; i < n; ++i) bits[i] = bf16_from_f32(values[i]);
}

float scale_at(In scales, int64_t i) {
  if (scales.dtype == Dtype::f32) return static_cast<const float*>(scales.data)[i];
  if (scales.dtype == Dtype::bf16)
    return f32_from_bf16(static_cast<const uint16_t*>(scales.data)[i]);
  return decode(scales.dtype, static_cast<const uint8_t*>(scales.data)[i]);
}

// The values of power-of-two rules are exact in each type; those of the linear rule are rounded to
// BF16 already where they are stored so.
void put_scale(Out scales, int64_t i, float scale) {
  if (scales.dtype == Dtype::f32) {
    static_cast<float*>(scales.data)[i] = scale;
  } else if (scales.dtype == Dtype::bf16) {
    static_cast<uint16_t*>(scales.data)[i] = bf16_from_f32(scale);
  } else {
    static_cast<uint8_t*>(scales.data)[i] =
        static_cast<uint8_t>(encode(scales.dtype, scale, Rounding::ceil));
  }
}

// The blocks that lie in rows [first, last) and columns [col, col + n) of a matrix.
struct Band {
  int64_t first = 0, last = 0, cols = 0, col = 0, n = 0, width = 1;
  int64_t n_blocks() const { return ceil_div(n, width); }
  int64_t at(int64_t row) const { return row * cols + col; }
  int64_t size(int64_t block) const { return std::min(width, n - block * width); }
};

// fn(band, index of its first scale) for all of them, a band a task.
template <typename Fn>
void for_bands(ScaleTile by, RowShape shape, ThreadPool& pool, Fn&& fn) {
  const int64_t width = std::min(by.cols, std::max<int64_t>(1, shape.cols));
  const int64_t across = ceil_div(shape.cols, width);
  const int64_t step = std::max<int64_t>(1, kSpan / width) * width;
  for_tiles(pool, ceil_div(shape.rows, by.rows), [&](int64_t tile, int) {
    const int64_t first = tile * by.rows, last = std::min(shape.rows, first + by.rows);
    for (int64_t c = 0; c < shape.cols; c += step) {
      const Band band{first, last, shape.cols, c, std::min(step, shape.cols - c), width};
      fn(band, tile * across + c / width);
    }
  });
}

// Parts of a block's row, of at most kSpan values: fn(first element, n).
template <typename Fn>
void for_spans(int64_t first, int64_t n, Fn&& fn) {
  for (int64_t i = 0; i < n; i += kSpan) fn(first + i, std::min(kSpan, n - i));
}

float span_amax(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = bits_of(x[i]) & kF32Magnitude;
    most = std::max(most, bits < kF32Inf ? bits : 0u);
  }
  return float_of(most);
}

Quantizer quantizer_of(const QuantizeAttrs& attrs, const BlockData& out) {
  return {.format = out.q.dtype,
          .granularity = {.kind = Granularity::Kind::tensor},
          .scale_type = out.scales.dtype,
          .rule = attrs.rule,
          .amax_target = static_cast<float>(attrs.target)};
}

// Factor that each block's data are multiplied by.
void measure(In x, const Quantizer& quantizer, const Band& band, float* scale) {
  Values buffer;
  std::fill_n(scale, band.n_blocks(), 0.0f);
  for (int64_t r = band.first; r < band.last; ++r) {
    for (int64_t block = 0; block < band.n_blocks(); ++block) {
      for_spans(band.at(r) + block * band.width, band.size(block), [&](int64_t at, int64_t n) {
        scale[block] = std::max(scale[block], span_amax(read_span(x, at, n, buffer), n));
      });
    }
  }
  for (int64_t block = 0; block < band.n_blocks(); ++block)
    scale[block] = scale_from_amax(quantizer, scale[block]);
}

}  // namespace

void quantize_blocks(In x, const QuantizeAttrs& attrs, RowShape shape, const BlockData& out,
                     ThreadPool& pool) {
  auto* const q = static_cast<uint8_t*>(out.q.data);
  const Out scales = out.scales;
  const Codec codec = simd_codec(out.q.dtype);
  const Quantizer quantizer = quantizer_of(attrs, out);
  for_bands(out.tile, shape, pool, [&](const Band& band, int64_t first_scale) {
    Values scale, buffer;
    measure(x, quantizer, band, scale.data());
    for (int64_t i = 0; i < band.n_blocks(); ++i)
      put_scale(scales, first_scale + i, scale[static_cast<size_t>(i)]);
    for (float& value : scale) value = 1.0f / value;
    for (int64_t r = band.first; r < band.last; ++r) {
      if (band.width == 1) {  // a row of blocks at once: times 1, the products stay
        const float* values = read_span(x, band.at(r), band.n, buffer);
        Values scaled;
        for (int64_t i = 0; i < band.n; ++i)
          scaled[static_cast<size_t>(i)] = values[i] * scale[static_cast<size_t>(i)];
        codec.encode_f32(scaled.data(), static_cast<size_t>(band.n), 1.0f, q + band.at(r));
        continue;
      }
      for (int64_t block = 0; block < band.n_blocks(); ++block) {
        const float inv_scale = scale[static_cast<size_t>(block)];
        for_spans(band.at(r) + block * band.width, band.size(block), [&](int64_t at, int64_t n) {
          codec.encode_f32(read_span(x, at, n, buffer), static_cast<size_t>(n), inv_scale, q + at);
        });
      }
    }
  });
}

void dequantize_blocks(const QuantizedBlocks& x, RowShape shape, Out y, ThreadPool& pool) {
  const auto* const q = static_cast<const uint8_t*>(x.q.data);
  const In scales = x.scales;
  const Codec codec = simd_codec(x.q.dtype);
  for_bands(x.tile, shape, pool, [&](const Band& band, int64_t first_scale) {
    Values buffer;
    for (int64_t r = band.first; r < band.last; ++r) {
      if (band.width == 1) {
        codec.decode_f32(q + band.at(r), static_cast<size_t>(band.n), 1.0f, buffer.data());
        for (int64_t i = 0; i < band.n; ++i)
          buffer[static_cast<size_t>(i)] *= scale_at(scales, first_scale + i);
        write_span(y, band.at(r), band.n, buffer.data());
        continue;
      }
      for (int64_t block = 0; block < band.n_blocks(); ++block) {
        const float scale = scale_at(scales, first_scale + block);
        for_spans(band.at(r) + block * band.width, band.size(block), [&](int64_t at, int64_t n) {
          codec.decode_f32(q + at, static_cast<size_t>(n), scale, buffer.data());
          write_span(y, at, n, buffer.data());
        });
      }
    }
  });
}

void quantize_rounded(In x, const RoundedBy& by, const TensorCodes& out, RowShape shape,
                      ThreadPool& pool) {
  const QuantizeAttrs& attrs = by.attrs;
  const float inv_scale = 1.0f / out.scale;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const RandomStream random = drawn_stream(attrs.stream, by.draw);
  const bool is_full = out.format == Dtype::int8 && attrs.target == kFullInt8Target;
  if (out.transposed != nullptr && out.padded_rows > shape.rows)
    std::memset(out.transposed, out.zero_code, static_cast<size_t>(shape.cols * out.padded_rows));
  for_tiles(pool, shape.rows, [&](int64_t r, int) {
    Values buffer;
    for_spans(r * shape.cols, shape.cols, [&](int64_t at, int64_t n) {
      const float* values = read_span(x, at, n, buffer);
      visit_format(out.format, [&]<Dtype D>() {
        EncodeOptions options{.source = attrs.source};
        PhiloxBlock words = random.block(static_cast<uint64_t>(at) / 4);
        for (int64_t i = 0; i < n; ++i) {
          const auto element = static_cast<uint64_t>(at + i);
          if (element % 4 == 0) words = random.block(element / 4);
          options.random_bits = words.word[element % 4];
          const float scaled = values[i] * inv_scale;
          const bool fits = out.limit == 0 || std::abs(scaled) <= out.limit;
          auto q = static_cast<uint8_t>(encode<D>(fits ? scaled : kNan, attrs.rounding, options));
          if (is_full) q = static_cast<uint8_t>(encode_full_int8(scaled));
          if (out.rows != nullptr) out.rows[at + i] = q;
          const int64_t col = at + i - r * shape.cols;
          if (out.transposed != nullptr) out.transposed[col * out.padded_rows + r] = q;
        }
      });
    });
  });
}

void fake_quantize(const Quantizer& quantizer, RowShape shape, const float* x, float* y,
                   ThreadPool& pool) {
  constexpr int64_t kRowsAtOnce = 8;
  const Codec codec = simd_codec(quantizer.format);
  const bool is_row = quantizer.granularity.kind == Granularity::Kind::row;
  const int64_t group = is_row ? shape.cols : quantizer.granularity.size;
  for_blocks(pool, shape.rows, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
    std::array<uint8_t, kSpan> q;
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < shape.cols; c += group) {
        const int64_t first = r * shape.cols + c, n = std::min(group, shape.cols - c);
        const octet::Amax all = octet::amax(std::span(x + first, static_cast<size_t>(n)));
        const float scale = scale_from_amax(quantizer, all.value), inv_scale = 1.0f / scale;
        for (int64_t i = first; i < first + n; i += kSpan) {
          const auto n_piece = static_cast<size_t>(std::min(kSpan, first + n - i));
          codec.encode_f32(x + i, n_piece, inv_scale, q.data());
          codec.decode_f32(q.data(), n_piece, scale, y + i);
        }
      }
    }
  });
}

}  // namespace octet::cpu
