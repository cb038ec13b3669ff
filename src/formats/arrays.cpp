#include "formats/arrays.h"

#include <cstring>

#include "base/error.h"

namespace octet {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes, size_t i) {
  T word;
  std::memcpy(&word, bytes.data() + i * sizeof(T), sizeof(T));
  return word;
}

template <typename T>
void store(T word, std::span<std::byte> bytes, size_t i) {
  std::memcpy(bytes.data() + i * sizeof(T), &word, sizeof(T));
}

// How many elements of these widths lie in the two.
size_t count_of(std::span<const std::byte> from, int from_width, std::span<const std::byte> to,
                int to_width) {
  const size_t n = from.size() / static_cast<size_t>(from_width);
  const bool is_whole = n * static_cast<size_t>(from_width) == from.size();
  if (!is_whole || to.size() != n * static_cast<size_t>(to_width)) {
    throw Error(ErrorCode::invalid_argument,
                "[formats] expected elements of {} and {} bytes, as many of each, got {} and {} "
                "bytes",
                from_width, to_width, from.size(), to.size());
  }
  return n;
}

// read(i) is value i as f32.
template <Dtype D, typename Read>
void encode_each(const ArrayEncoding& encoding, size_t n, std::span<std::byte> codes, Read read) {
  const RandomStream stream{.name = name_hash("formats"), .seed = encoding.seed};
  const bool draws = encoding.rounding == Rounding::sr && encoding.bits.empty();
  EncodeOptions options = encoding.options;
  for (size_t i = 0; i < n; ++i) {
    if (draws) options.random_bits = stream.bits(i);
    if (!encoding.bits.empty()) options.random_bits = encoding.bits[i];
    store(static_cast<CodeWord<D>>(encode<D>(read(i), encoding.rounding, options)), codes, i);
  }
}

}  // namespace

void encode_array(const ArrayEncoding& encoding, std::span<const std::byte> values,
                  std::span<std::byte> codes) {
  const Dtype source = encoding.options.source;
  if (source != Dtype::f32 && source != Dtype::bf16 && source != Dtype::fp16) {
    throw Error(ErrorCode::invalid_argument,
                "[formats] expected values of f32, bf16 or fp16, got {}", dtype_name(source));
  }
  check_rounding(encoding.format, encoding.rounding);
  const size_t n = count_of(values, dtype_bytes(source), codes, dtype_bytes(encoding.format));
  if (!encoding.bits.empty() && encoding.bits.size() != n) {
    throw Error(ErrorCode::bad_data, "[formats] expected {} random words, one a value, got {}", n,
                encoding.bits.size());
  }
  visit_format(encoding.format, [&]<Dtype D>() {
    if (source == Dtype::f32)
      return encode_each<D>(encoding, n, codes, [&](size_t i) { return load<float>(values, i); });
    encode_each<D>(encoding, n, codes,
                   [&](size_t i) { return decode(source, load<uint16_t>(values, i)); });
  });
}

void decode_array(Dtype format, std::span<const std::byte> codes, std::span<std::byte> values) {
  visit_format(format, [&]<Dtype D>() {
    const size_t n = count_of(codes, dtype_bytes(D), values, sizeof(float));
    for (size_t i = 0; i < n; ++i) store(decode<D>(load<CodeWord<D>>(codes, i)), values, i);
  });
}

void decode_values(Dtype dtype, std::span<const std::byte> bytes, std::span<float> out) {
  if (dtype == Dtype::f32) {
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return;
  }
  if (dtype == Dtype::bf16) {  // most weights: a loop that is vectorized
    for (size_t i = 0; i < out.size(); ++i) out[i] = f32_from_bf16(load<uint16_t>(bytes, i));
    return;
  }
  visit_format(dtype, [&]<Dtype D>() {
    for (size_t i = 0; i < out.size(); ++i) out[i] = decode<D>(load<CodeWord<D>>(bytes, i));
  });
}

std::vector<float> decode_values(Dtype dtype, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(dtype_bytes(dtype)));
  decode_values(dtype, bytes, values);
  return values;
}

}  // namespace octet
