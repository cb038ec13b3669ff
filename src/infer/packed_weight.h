// INT8 weights as compressed-tensors' pack-quantized has them: NAME.weight_packed, I32
// [rows, ceil(cols / 4)], a row's bytes q + 128 in order and zeros behind them, with
// NAME.weight_shape, I64 [2]: rows, cols. Source: compressed-tensors 0.20, pack_quantized.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "io/model_files.h"
#include "ir/types.h"

namespace octet {

inline constexpr std::string_view kPackedSuffix = ".weight_packed";
inline constexpr std::string_view kPackedShapeSuffix = ".weight_shape";

class PackedWeight {
 public:
  // `packed`: its name in the files. Throws Error{bad_data} where it is not a weight of this shape.
  PackedWeight(const ModelFiles& files, const std::string& packed, const Shape& shape);

  const StoredTensor& unpacked() const { return unpacked_; }  // NAME.weight, I8
  // Bytes [first, first + out.size()) of it. From several threads at a time.
  void read(const ModelFiles& files, std::span<std::byte> out, uint64_t first) const;

 private:
  std::string name_;
  StoredTensor unpacked_;
};

}  // namespace octet
