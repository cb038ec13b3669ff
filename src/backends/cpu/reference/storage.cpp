#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backends/cpu/reference/reference.h"
#include "formats/codec.h"
#include "formats/to_odd.h"

namespace octet::reference {
namespace {

// How a dtype is stored: as a Word, which stands for a double.
template <typename T>
struct Number {
  using Word = T;
  static double decode(T x) { return static_cast<double>(x); }
  static T encode(double x) {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
    constexpr auto kLow = static_cast<double>(std::numeric_limits<T>::min());
    constexpr auto kHigh = static_cast<double>(std::numeric_limits<T>::max());
    return std::isnan(x) ? T{0} : static_cast<T>(std::clamp(std::nearbyint(x), kLow, kHigh));
  }
};

struct Flag : Number<uint8_t> {
  static uint8_t encode(double x) { return x != 0 ? 1 : 0; }
};

template <Dtype D>
struct Code {
  using Word = CodeWord<D>;
  static double decode(Word code) { return static_cast<double>(octet::decode<D>(code)); }
  static Word encode(double x) {
    constexpr EncodeOptions kOptions{.saturate = !format_row(D).has_inf};
    return static_cast<Word>(octet::encode<D>(to_odd(x), Rounding::near, kOptions));
  }
};

// Calls f(Number, Flag or Code) for a dtype that has storage; throws where it has none.
template <typename F>
auto visit_stored(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f32:
      return f(Number<float>());
    case Dtype::i32:
      return f(Number<int32_t>());
    case Dtype::u32:
      return f(Number<uint32_t>());
    case Dtype::i16:
      return f(Number<int16_t>());
    case Dtype::u16:
      return f(Number<uint16_t>());
    case Dtype::u8:
      return f(Number<uint8_t>());
    case Dtype::boolean:
      return f(Flag());
    default:
      return visit_format(dtype, [&]<Dtype D>() { return f(Code<D>()); });
  }
}

}  // namespace

double round_to(Dtype dtype, double x) {
  if (dtype == Dtype::real) return x;
  return visit_stored(dtype, [&](auto stored) { return stored.decode(stored.encode(x)); });
}

void load(Dtype dtype, const std::byte* from, std::span<double> to) {
  visit_stored(dtype, [&]<typename Stored>(Stored) {
    for (size_t i = 0; i < to.size(); ++i) {
      typename Stored::Word word;
      std::memcpy(&word, from + i * sizeof(word), sizeof(word));
      to[i] = Stored::decode(word);
    }
  });
}

void store(Dtype dtype, std::span<const double> from, std::byte* to) {
  visit_stored(dtype, [&]<typename Stored>(Stored) {
    for (size_t i = 0; i < from.size(); ++i) {
      const auto word = Stored::encode(from[i]);
      std::memcpy(to + i * sizeof(word), &word, sizeof(word));
    }
  });
}

}  // namespace octet::reference
