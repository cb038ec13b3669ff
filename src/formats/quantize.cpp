#include "formats/quantize.h"

#include <algorithm>
#include <limits>

#include "base/integer.h"
#include "base/parse_text.h"
#include "formats/group_scale.h"

namespace octet {
namespace {

constexpr float kMinScale = 0x1p-100f;
constexpr int64_t kMxGroup = 32;
constexpr int64_t kMaxInGroup = std::numeric_limits<int32_t>::max();  // as a name says it

using Kind = Granularity::Kind;

std::optional<int64_t> parse_size(std::string_view text) {
  const auto value = parse_number<int64_t>(text);
  return value && *value >= 1 && *value <= kMaxInGroup ? value : std::nullopt;
}

// Height and width of one scale's tile.
MatrixShape tile_shape(const MatrixShape& shape, const Granularity& g) {
  switch (g.kind) {
    case Kind::row:
      return {1, shape.cols};
    case Kind::group:
      return {1, g.size};
    case Kind::column_group:
      return {g.size, 1};
    case Kind::block:
      return {g.size, g.size};
    default:
      return shape;
  }
}

void check(const Quantizer& q, const MatrixShape& shape, int64_t n_values, int64_t n_codes,
           int64_t n_scales) {
  if (!is_quantized(q.format) || q.format == Dtype::e8m0) {
    throw Error(ErrorCode::invalid_argument, "[quantize] expected an 8-bit element format, got {}",
                dtype_name(q.format));
  }
  const bool power = q.rule != ScaleRule::linear;
  const bool known = q.scale_type == Dtype::f32 || q.scale_type == Dtype::bf16 ||
                     (q.scale_type == Dtype::e8m0 && power);
  if (!known) {
    throw Error(ErrorCode::invalid_argument,
                "[quantize] expected scales f32, bf16, or e8m0 with a power-of-two rule, got {}",
                dtype_name(q.scale_type));
  }
  const int64_t want = scale_shape(shape, q.granularity).n_elems();
  if (n_values != shape.n_elems() || n_codes != shape.n_elems() || n_scales != want) {
    throw Error(ErrorCode::invalid_argument,
                "[quantize] shape [{}, {}] with granularity {} wants {} values, {} codes and {} "
                "scales, got {}, {} and {}",
                shape.rows, shape.cols, granularity_name(q.granularity), shape.n_elems(),
                shape.n_elems(), want, n_values, n_codes, n_scales);
  }
}

// Calls f(scale_index, first_row, end_row, first_col, end_col) for every tile.
template <typename F>
void for_each_tile(const MatrixShape& shape, const Granularity& granularity, F&& f) {
  const MatrixShape tile = tile_shape(shape, granularity);
  const MatrixShape grid = scale_shape(shape, granularity);
  if (shape.n_elems() == 0) {  // a side may be without end where the other is empty
    for (int64_t i = 0; i < grid.n_elems(); ++i) f(i, 0, 0, 0, 0);
    return;
  }
  for (int64_t i = 0; i < grid.rows; ++i) {
    const int64_t row = i * tile.rows, n_rows = std::min(tile.rows, shape.rows - row);
    for (int64_t j = 0; j < grid.cols; ++j) {
      const int64_t col = j * tile.cols, n_cols = std::min(tile.cols, shape.cols - col);
      f(i * grid.cols + j, row, row + n_rows, col, col + n_cols);
    }
  }
}

}  // namespace

Dtype usual_scale(Kind kind) {
  if (kind == Kind::run) return Dtype::u32;
  return kind == Kind::tensor || kind == Kind::row ? Dtype::f32 : Dtype::bf16;
}

std::optional<Granularity> find_granularity(std::string_view name) {
  const auto of = [](Kind kind, int64_t size = 0) {
    return Granularity{.kind = kind, .size = size, .scale = usual_scale(kind)};
  };
  if (name == "tensor") return of(Kind::tensor);
  if (name == "row") return of(Kind::row);
  if (name.starts_with("run")) {
    const auto size = parse_size(name.substr(3));
    return size ? std::optional(of(Kind::run, *size)) : std::nullopt;
  }
  const size_t cross = name.find('x');
  if (cross == std::string_view::npos) return std::nullopt;
  const auto height = parse_size(name.substr(0, cross)), width = parse_size(name.substr(cross + 1));
  if (!height || !width) return std::nullopt;
  if (*height == 1) return of(Kind::group, *width);
  if (*width == 1) return of(Kind::column_group, *height);
  return *height == *width ? std::optional(of(Kind::block, *width)) : std::nullopt;
}

Granularity granularity_from_name(std::string_view name) {
  const auto found = find_granularity(name);
  if (found && found->kind != Kind::column_group && found->kind != Kind::run)
    return {.kind = found->kind, .size = found->size};
  throw Error(ErrorCode::invalid_argument,
              "[quantize] expected granularity tensor, row, 1xG or BxB (G, B from 1 to {}), got {}",
              kMaxInGroup, name);
}

std::string granularity_name(const Granularity& granularity) {
  switch (granularity.kind) {
    case Kind::none:
      return "none";
    case Kind::tensor:
      return "tensor";
    case Kind::row:
      return "row";
    case Kind::group:
      return fmt::format("1x{}", granularity.size);
    case Kind::column_group:
      return fmt::format("{}x1", granularity.size);
    case Kind::block:
      return fmt::format("{0}x{0}", granularity.size);
    case Kind::run:
      return fmt::format("run{}", granularity.size);
  }
  return "?";
}

MatrixShape scale_shape(const MatrixShape& shape, const Granularity& granularity) {
  const int64_t size = granularity.size;
  const bool is_sized = granularity.kind != Kind::tensor && granularity.kind != Kind::row;
  if (is_sized && size <= 0) {
    throw Error(ErrorCode::invalid_argument, "[quantize] expected a positive group size, got {}",
                size);
  }
  switch (granularity.kind) {
    case Kind::tensor:
      return {1, 1};
    case Kind::row:
      return {shape.rows, 1};
    case Kind::group:
      return {shape.rows, ceil_div(shape.cols, size)};
    case Kind::column_group:
      return {ceil_div(shape.rows, size), shape.cols};
    case Kind::block:
      return {ceil_div(shape.rows, size), ceil_div(shape.cols, size)};
    case Kind::none:
    case Kind::run:
      break;
  }
  throw Error(ErrorCode::invalid_argument, "[quantize] a matrix has no grid of scales by {}",
              granularity_name(granularity));
}

Quantizer linear_quantizer(Dtype format, const Granularity& granularity) {
  const Dtype scale_type = granularity.kind == Kind::group ? Dtype::bf16 : Dtype::f32;
  return {format, granularity, scale_type, ScaleRule::linear, find_format(format).amax_target};
}

Quantizer mx_quantizer(Dtype format, ScaleRule rule) {
  return {format, {Kind::group, kMxGroup}, Dtype::e8m0, rule, max_finite(format)};
}

Amax amax(std::span<const float> x) {
  Amax result;
  for (const float value : x) result = join(result, amax_of(value));
  return result;
}

float scale_from_amax(const Quantizer& quantizer, float amax) {
  if (quantizer.rule == ScaleRule::linear) {
    if (amax == 0.0f) return 1.0f;
    const float inv_target = 1.0f / quantizer.amax_target;
    const float scale = std::max(amax * inv_target, kMinScale);
    // Near the largest f32 a scale that is rounded up would make infinity of amax.
    return quantizer.scale_type == Dtype::bf16
               ? f32_from_bf16(bf16_from_f32(std::min(scale, largest_group_scale(inv_target))))
               : scale;
  }
  const bool mx = quantizer.scale_type == Dtype::e8m0;
  if (amax == 0.0f) return mx ? power_of_two(-127) : 1.0f;
  const Unpacked a = unpack(amax), target = unpack(quantizer.amax_target);
  const bool is_above = a.significand > target.significand;
  const int exponent =
      a.exponent - target.exponent + (quantizer.rule == ScaleRule::power_ceil && is_above ? 1 : 0);
  return power_of_two(std::clamp(exponent, mx ? -127 : -100, 127));
}

bool quantize(const Quantizer& quantizer, const MatrixShape& shape, std::span<const float> x,
              std::span<uint8_t> codes, std::span<float> scales) {
  check(quantizer, shape, std::ssize(x), std::ssize(codes), std::ssize(scales));
  bool nonfinite = false;
  visit_format(quantizer.format, [&]<Dtype D>() {
    for_each_tile(shape, quantizer.granularity,
                  [&](int64_t index, int64_t row0, int64_t row1, int64_t col0, int64_t col1) {
                    Amax group;
                    for (int64_t r = row0; r < row1; ++r) {
                      group = join(group, amax(x.subspan(r * shape.cols + col0, col1 - col0)));
                    }
                    nonfinite |= group.nonfinite;
                    const float scale = scale_from_amax(quantizer, group.value);
                    const float inv_scale = 1.0f / scale;
                    scales[index] = scale;
                    for (int64_t r = row0; r < row1; ++r) {
                      for (int64_t i = r * shape.cols + col0; i < r * shape.cols + col1; ++i) {
                        codes[i] = static_cast<uint8_t>(encode<D>(x[i] * inv_scale));
                      }
                    }
                  });
  });
  return nonfinite;
}

void dequantize(const Quantizer& quantizer, const MatrixShape& shape,
                std::span<const uint8_t> codes, std::span<const float> scales, std::span<float> x) {
  check(quantizer, shape, std::ssize(x), std::ssize(codes), std::ssize(scales));
  visit_format(quantizer.format, [&]<Dtype D>() {
    for_each_tile(shape, quantizer.granularity,
                  [&](int64_t index, int64_t row0, int64_t row1, int64_t col0, int64_t col1) {
                    for (int64_t r = row0; r < row1; ++r) {
                      for (int64_t i = r * shape.cols + col0; i < r * shape.cols + col1; ++i) {
                        x[i] = decode<D>(codes[i]) * scales[index];
                      }
                    }
                  });
  });
}

}  // namespace octet
