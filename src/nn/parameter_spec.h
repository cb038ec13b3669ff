// A model's parameter: its name, its shape here and in files, and its first values.
#pragma once

#include <cstdint>
#include <string>

#include "ir/types.h"

namespace octet {

enum class Init : uint8_t { normal, ones, zeros };

struct ParameterSpec {
  std::string name;
  Shape shape;
  Init init = Init::normal;
  double std = 0;         // of Init::normal, mean 0
  bool decay = false;     // weight decay: matrices, but not embeddings (a tied head is one)
  Shape file_shape = {};  // in model folders, where it is another: of as many elements, in order
  bool channels_last = false;  // a convolution's [out, in, ...] in files is [out, ..., in] here
  bool is_statistic = false;   // InputKind::statistic
  bool operator==(const ParameterSpec&) const = default;
};

// True if it is a linear's matrix: no table of embeddings, and no convolution.
inline bool is_linear(const ParameterSpec& parameter) {
  return parameter.shape.size() == 2 && parameter.decay && parameter.file_shape.empty();
}

}  // namespace octet
