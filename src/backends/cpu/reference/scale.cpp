#include <algorithm>

#include "backends/cpu/reference/kernels.h"
#include "base/philox.h"
#include "formats/codec.h"
#include "math/master.h"

namespace octet::reference {

// What passes/scalify reads.
void set_scale(const RefCall& call) {
  copy(call);
}
void rebalance(const RefCall& call) {
  copy(call);
}
void dynamic_rescale(const RefCall& call) {
  copy(call);
}
void custom_scale(const RefCall& call) {
  copy(call);
}

void delayed_rescale(const RefCall& call) {
  for (const size_t i : {0, 1})
    std::copy(call.in[i].data.begin(), call.in[i].data.end(), call.out[i].data.begin());
}

void store_scaled(const RefCall& call) {
  const auto& a = std::get<StoreScaledAttrs>(call.attrs);
  const auto scale = static_cast<float>(call.in[StoreScaled::scale].data[0]);
  const RandomStream random{.name = static_cast<uint64_t>(a.stream),
                            .seed = static_cast<uint32_t>(a.seed),
                            .step = static_cast<uint32_t>(call.in[StoreScaled::attempt].data[0])};
  for (size_t i = 0; i < call.out[0].data.size(); ++i) {
    const float x = static_cast<float>(call.in[0].data[i]) / scale;
    const uint32_t word = random.bits(static_cast<uint64_t>(a.first) + i);
    const uint32_t code = store_fp16(x, word, a.keeps_positive);
    call.out[0].data[i] = static_cast<double>(decode(Dtype::fp16, code));
  }
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

}  // namespace octet::reference
