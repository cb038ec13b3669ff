#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {

std::span<const Binding> row_bindings() {
  return {};
}

}  // namespace octet::cuda
