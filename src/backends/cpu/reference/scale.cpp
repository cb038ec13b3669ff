#include <algorithm>

#include "backends/cpu/reference/kernels.h"
#include "math/power_of_two.h"

namespace octet::reference {

void rescale(const RefCall& call) {
  for (size_t i = 0; i < call.out[0].data.size(); ++i)
    call.out[0].data[i] = call.in[0].data[i] * call.in[1].data[0];
}

void cast_in(const RefCall& call) {
  const auto& attrs = std::get<CastInAttrs>(call.attrs);
  copy(call);
  if (attrs.direction == Direction::backward) return;
  for (double& y : call.out[0].data) y = round_to(attrs.dtype, y);
}

void data_scale(const RefCall& call) {
  std::copy(call.in[0].data.begin(), call.in[0].data.end(), call.out[0].data.begin());
  call.out[1].data[0] = 1;
}

void power_of_two(const RefCall& call) {
  call.out[0].data[0] = nearest_power_of_two(static_cast<float>(call.in[0].data[0]));
}

}  // namespace octet::reference
