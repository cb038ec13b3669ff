// Weights that no golden stores: a function of a tensor's name and an element's place, as
// weights_of of tools/make_folder_goldens.py has it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/types.h"

namespace octet::golden {

// From -0.25 to 0.25, of vectors around 0.5.
inline std::vector<float> weights_of(const std::string& name, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(n_elems(shape)));
  for (size_t place = 0; place < values.size(); ++place) {
    const auto i = static_cast<int64_t>(place), length = static_cast<int64_t>(name.size());
    const int64_t number = (i * 7919 + i * i * 31 + length * 104729) % 2003 - 1001;
    const double base = shape.size() == 1 ? 0.5 : 0;
    values[place] = static_cast<float>(static_cast<double>(number) / 4004 + base);
  }
  return values;
}

}  // namespace octet::golden
