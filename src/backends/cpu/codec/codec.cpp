#include "backends/cpu/codec/codec.h"

#include "backends/cpu/codec/kernels.h"

namespace octet::cpu {
namespace {

Codec find_codec(Dtype format, CodecPath path) {
  return path == CodecPath::simd ? simd_codec(format) : scalar_codec(format);
}

void check(const char* where, Dtype format, bool fits, size_t n_in, size_t n_out) {
  if (!fits) {
    throw Error(ErrorCode::invalid_argument, "[{}] expected a format that it takes, got {}", where,
                dtype_name(format));
  }
  if (n_in != n_out) {
    throw Error(ErrorCode::invalid_argument, "[{}] expected {} results, got room for {}", where,
                n_in, n_out);
  }
}

}  // namespace

Codec scalar_codec(Dtype format) {
  return visit_format(format, []<Dtype D>() -> Codec {
    if constexpr (dtype_bytes(D) == 2) {
      return {.encode_16 = scalar::encode_16<D>, .decode_16 = scalar::decode_16<D>};
    } else if constexpr (!has_codec(D)) {
      return {};
    } else {
      return {.encode_f32 = scalar::encode_f32<D>,
              .encode_bf16 = scalar::encode_bf16<D>,
              .decode_f32 = scalar::decode_f32<D>,
              .decode_bf16 = scalar::decode_bf16<D>};
    }
  });
}

void encode_bulk(Dtype format, std::span<const float> x, float inv_scale, std::span<uint8_t> codes,
                 CodecPath path) {
  const Codec codec = find_codec(format, path);
  check("encode_bulk", format, codec.encode_f32 != nullptr, x.size(), codes.size());
  codec.encode_f32(x.data(), x.size(), inv_scale, codes.data());
}

void decode_bulk(Dtype format, std::span<const uint8_t> codes, float scale, std::span<float> x,
                 CodecPath path) {
  const Codec codec = find_codec(format, path);
  check("decode_bulk", format, codec.decode_f32 != nullptr, codes.size(), x.size());
  codec.decode_f32(codes.data(), codes.size(), scale, x.data());
}

void encode_bulk_bf16(Dtype format, std::span<const uint16_t> x, float inv_scale,
                      std::span<uint8_t> codes, CodecPath path) {
  const Codec codec = find_codec(format, path);
  check("encode_bulk_bf16", format, codec.encode_bf16 != nullptr, x.size(), codes.size());
  codec.encode_bf16(x.data(), x.size(), inv_scale, codes.data());
}

void decode_bulk_bf16(Dtype format, std::span<const uint8_t> codes, std::span<uint16_t> x,
                      CodecPath path) {
  const Codec codec = find_codec(format, path);
  check("decode_bulk_bf16", format, is_gemm_operand(format), codes.size(), x.size());
  codec.decode_bf16(codes.data(), codes.size(), x.data());
}

void encode_bulk_16(Dtype format, std::span<const float> x, std::span<uint16_t> codes,
                    CodecPath path) {
  const Codec codec = find_codec(format, path);
  check("encode_bulk_16", format, codec.encode_16 != nullptr, x.size(), codes.size());
  codec.encode_16(x.data(), x.size(), codes.data());
}

void decode_bulk_16(Dtype format, std::span<const uint16_t> codes, std::span<float> x,
                    CodecPath path) {
  const Codec codec = find_codec(format, path);
  check("decode_bulk_16", format, codec.decode_16 != nullptr, codes.size(), x.size());
  codec.decode_16(codes.data(), codes.size(), x.data());
}

}  // namespace octet::cpu
