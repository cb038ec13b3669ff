#include <algorithm>

#include "backends/cpu/reference/kernels.h"
#include "base/philox.h"
#include "formats/codec.h"
#include "math/master.h"

namespace octet::reference {

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

}  // namespace octet::reference
