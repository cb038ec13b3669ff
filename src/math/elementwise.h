// The functions of elementwise.def: exp_of(a, b) for its exp, for V float or double; b is not read
// by one of a alone. Host and device.
#pragma once

#include <cmath>

#include "base/host_device.h"
#include "math/power_of_two.h"

namespace octet {

// Maximum of what is no NaN. Of two zeros a GPU's takes +0 or -0, the reference the first.
OCTET_HOST_DEVICE inline float max_number(float a, float b) {
  return fmaxf(a, b);
}
OCTET_HOST_DEVICE inline float min_number(float a, float b) {
  return fminf(a, b);
}
OCTET_HOST_DEVICE inline double max_number(double a, double b) {
  return a < b ? b : a;
}
OCTET_HOST_DEVICE inline double min_number(double a, double b) {
  return b < a ? b : a;
}

#define ELEMENT(op, arity, computes_in, ...)                      \
  template <typename V>                                           \
  OCTET_HOST_DEVICE inline V op##_of(V a, [[maybe_unused]] V b) { \
    return static_cast<V>(__VA_ARGS__);                           \
  }
#include "math/elementwise.def"

}  // namespace octet
