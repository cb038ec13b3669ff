#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/reference/reference.h"
#include "base/error.h"
#include "formats/codec.h"

namespace octet::reference {
namespace {

// To f32 by rounding to odd: a second rounding, to a narrower format, then rounds as if there had
// been none before.
float to_odd(double x) {
  auto f = static_cast<float>(x);
  if (std::isnan(x) || static_cast<double>(f) == x) return f;
  if (std::fabs(static_cast<double>(f)) > std::fabs(x)) f = std::nextafterf(f, 0.0f);
  return float_of(bits_of(f) | 1u);
}

template <Dtype D>
uint32_t encode_number(double x) {
  constexpr FormatRow kRow = format_row(D);
  return encode<D>(to_odd(x), Rounding::near, {.saturate = !kRow.has_inf});
}

template <typename T>
T to_integer(double x) {
  constexpr auto kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<T>::max());
  return std::isnan(x) ? T{0} : static_cast<T>(std::clamp(std::nearbyint(x), kLow, kHigh));
}

template <typename T>
void load_as(const std::byte* from, std::span<double> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T element;
    std::memcpy(&element, from + i * sizeof(T), sizeof(T));
    to[i] = static_cast<double>(element);
  }
}

template <typename T, typename Convert>
void store_as(std::span<const double> from, std::byte* to, Convert&& convert) {
  for (size_t i = 0; i < from.size(); ++i) {
    const T element = static_cast<T>(convert(from[i]));
    std::memcpy(to + i * sizeof(T), &element, sizeof(T));
  }
}

template <typename Code>
void load_codes(Dtype dtype, const std::byte* from, std::span<double> to) {
  load_as<Code>(from, to);
  visit_format(dtype, [&]<Dtype D>() {
    for (double& x : to) x = static_cast<double>(decode<D>(static_cast<uint32_t>(x)));
  });
}

double to_bool(double x) {
  return x != 0 ? 1 : 0;
}

}  // namespace

double round_to(Dtype dtype, double x) {
  switch (dtype) {
    case Dtype::real:
      return x;
    case Dtype::f32:
      return static_cast<double>(static_cast<float>(x));
    case Dtype::i32:
      return to_integer<int32_t>(x);
    case Dtype::u32:
      return to_integer<uint32_t>(x);
    case Dtype::i16:
      return to_integer<int16_t>(x);
    case Dtype::u16:
      return to_integer<uint16_t>(x);
    case Dtype::u8:
      return to_integer<uint8_t>(x);
    case Dtype::boolean:
      return to_bool(x);
    default:
      return visit_format(
          dtype, [&]<Dtype D>() { return static_cast<double>(decode<D>(encode_number<D>(x))); });
  }
}

void load(Dtype dtype, const std::byte* from, std::span<double> to) {
  switch (dtype) {
    case Dtype::real:
      CHECK(false);
      return;
    case Dtype::f32:
      return load_as<float>(from, to);
    case Dtype::i32:
      return load_as<int32_t>(from, to);
    case Dtype::u32:
      return load_as<uint32_t>(from, to);
    case Dtype::i16:
      return load_as<int16_t>(from, to);
    case Dtype::u16:
      return load_as<uint16_t>(from, to);
    case Dtype::u8:
    case Dtype::boolean:
      return load_as<uint8_t>(from, to);
    case Dtype::bf16:
    case Dtype::fp16:
      return load_codes<uint16_t>(dtype, from, to);
    default:
      return load_codes<uint8_t>(dtype, from, to);
  }
}

void store(Dtype dtype, std::span<const double> from, std::byte* to) {
  switch (dtype) {
    case Dtype::real:
      CHECK(false);
      return;
    case Dtype::f32:
      return store_as<float>(from, to, [](double x) { return x; });
    case Dtype::i32:
      return store_as<int32_t>(from, to, to_integer<int32_t>);
    case Dtype::u32:
      return store_as<uint32_t>(from, to, to_integer<uint32_t>);
    case Dtype::i16:
      return store_as<int16_t>(from, to, to_integer<int16_t>);
    case Dtype::u16:
      return store_as<uint16_t>(from, to, to_integer<uint16_t>);
    case Dtype::u8:
      return store_as<uint8_t>(from, to, to_integer<uint8_t>);
    case Dtype::boolean:
      return store_as<uint8_t>(from, to, to_bool);
    case Dtype::bf16:
      return store_as<uint16_t>(from, to, encode_number<Dtype::bf16>);
    case Dtype::fp16:
      return store_as<uint16_t>(from, to, encode_number<Dtype::fp16>);
    default:
      return visit_format(dtype, [&]<Dtype D>() { store_as<uint8_t>(from, to, encode_number<D>); });
  }
}

}  // namespace octet::reference
