#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {

std::span<const Binding> attention_bindings() {
  return {};
}

}  // namespace octet::cuda
