#include "base/input_limits.h"

namespace octet {

const InputLimits& input_limits() {
  static constexpr InputLimits kLimits;
  return kLimits;
}

}  // namespace octet
