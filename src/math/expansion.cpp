#include "math/expansion.h"

#include <algorithm>

#include "base/integer.h"
#include "formats/codec.h"

namespace octet {
namespace {

[[noreturn]] void no_expansion(Dtype format) {
  throw Error(ErrorCode::invalid_argument,
              "[expansion] expected a format with range expansion, got {}", dtype_name(format));
}

void check(const ExpandOptions& options, int64_t n_values, int64_t n_codes, int64_t n_meta) {
  if (!is_format(options.format) || format_row(options.format).expansion_ratio_m == 0) {
    no_expansion(options.format);
  }
  const int64_t groups = expand_groups(n_values, options.group);
  if (n_codes != n_values || n_meta != groups) {
    throw Error(
        ErrorCode::invalid_argument,
        "[expansion] {} values in groups of {} want {} codes and {} metadata, got {} and {}",
        n_values, options.group, n_values, groups, n_codes, n_meta);
  }
}

template <Dtype D, MathMode Mode>
bool quantize_group(std::span<const float> x, std::span<uint8_t> codes, uint32_t& meta,
                    const RangeThresholds& thresholds) {
  AbsRange range;
  for (const float value : x) range = join(range, value);
  meta = expansion_meta(range, thresholds);
  for (size_t i = 0; i < x.size(); ++i) {
    codes[i] = static_cast<uint8_t>(expand_encode<D, Mode>(x[i], meta));
  }
  return range.nonfinite;
}

void check_meta(std::span<const uint32_t> meta) {
  for (const uint32_t word : meta) {
    const bool good = is_finite(meta_amax(word)) && meta_amax(word) > 0 && meta_k16(word) > 0;
    if (word != 0 && !good) {
      throw Error(ErrorCode::bad_data,
                  "[expansion] expected metadata of a positive amax and k >= 1/16, got {:#010x}",
                  word);
    }
  }
}

// Calls f.operator()<D, Mode>(group, first, count) for every group.
template <typename F>
void for_each_group(const ExpandOptions& options, int64_t n_elems, F&& f) {
  visit_format(options.format, [&]<Dtype D>() {
    if constexpr (kFormatRow<D>.expansion_ratio_m != 0) {
      for (int64_t first = 0, g = 0; first < n_elems; first += options.group, ++g) {
        const int64_t count = std::min(options.group, n_elems - first);
        if (options.math == MathMode::exact) {
          f.template operator()<D, MathMode::exact>(g, first, count);
        } else {
          f.template operator()<D, MathMode::fast>(g, first, count);
        }
      }
    }
  });
}

}  // namespace

const Expansion& find_expansion(Dtype format, Moment moment) {
  return *visit_format(format, [&]<Dtype D>() -> const Expansion* {
    if constexpr (kFormatRow<D>.expansion_ratio_m != 0) {
      return moment == Moment::first ? &kExpansion<D, Moment::first>
                                     : &kExpansion<D, Moment::second>;
    } else {
      no_expansion(D);
    }
  });
}

int64_t expand_groups(int64_t n_elems, int64_t group) {
  if (group <= 0) {
    throw Error(ErrorCode::invalid_argument, "[expansion] expected a positive group size, got {}",
                group);
  }
  return ceil_div(n_elems, group);
}

bool expand_quantize(const ExpandOptions& options, std::span<const float> x,
                     std::span<uint8_t> codes, std::span<uint32_t> meta) {
  check(options, std::ssize(x), std::ssize(codes), std::ssize(meta));
  const RangeThresholds& thresholds = find_expansion(options.format, options.moment).thresholds;
  bool nonfinite = false;
  for_each_group(options, std::ssize(x),
                 [&]<Dtype D, MathMode Mode>(int64_t g, int64_t first, int64_t count) {
                   nonfinite |= quantize_group<D, Mode>(
                       x.subspan(first, count), codes.subspan(first, count), meta[g], thresholds);
                 });
  return nonfinite;
}

void expand_dequantize(const ExpandOptions& options, std::span<const uint8_t> codes,
                       std::span<const uint32_t> meta, std::span<float> x) {
  check(options, std::ssize(x), std::ssize(codes), std::ssize(meta));
  check_meta(meta);
  for_each_group(options, std::ssize(x),
                 [&]<Dtype D, MathMode Mode>(int64_t g, int64_t first, int64_t count) {
                   for (int64_t i = first; i < first + count; ++i) {
                     x[i] = expand_decode<D, Mode>(codes[i], meta[g]);
                   }
                 });
}

}  // namespace octet
