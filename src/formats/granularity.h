// Which elements of a quantized tensor share a scale, and what a scale is stored as.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/dtype.h"

namespace octet {

struct Granularity {
  enum class Kind : uint8_t {
    none,          // no scale
    tensor,        // one
    row,           // one a row of a matrix, whose columns are the last axis
    group,         // 1xG along the rows; the last of a row may be shorter
    column_group,  // Gx1; the last of a column may be shorter
    block,         // BxB, shorter at both edges
    run,           // `size` neighbours in memory, across rows: moments (math/moment.h)
  };
  Kind kind = Kind::none;
  int64_t size = 0;          // G, B, or of a run
  Dtype scale = Dtype::f32;  // f32, bf16, e8m0; u32 of a run: a scale and an expansion
  bool operator==(const Granularity&) const = default;
};

// "tensor", "row", "1xG" or "BxB", for example "1x16" and "128x128", sizes below 2^31; scales f32.
// Throws ErrorCode::invalid_argument.
Granularity granularity_from_name(std::string_view name);
// Any but none, "Gx1" and "runN" too, with the scales that a graph has for it unless told
// otherwise: f32 for a tensor and rows, BF16 for groups and blocks, u32 for runs.
std::optional<Granularity> find_granularity(std::string_view name);
Dtype usual_scale(Granularity::Kind kind);
// Without the scales' dtype.
std::string granularity_name(const Granularity& granularity);

}  // namespace octet
