#include <algorithm>
#include <cmath>
#include <numeric>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

bool is_class(double label, size_t n_classes) {
  return label >= 0 && label < static_cast<double>(n_classes);
}

}  // namespace

void cross_entropy(const RefCall& call) {
  const double smoothing = std::get<CrossEntropyAttrs>(call.attrs).smoothing;
  double total = 0;
  for (size_t t = 0; t < dim(call.in[0], 0); ++t) {
    const auto logits = row(call.in[0], t);
    const double label = call.in[1].data[t];
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0, mean = 0;
    for (const double e : logits) sum += std::exp(e - largest);
    if (smoothing != 0)
      mean =
          std::accumulate(logits.begin(), logits.end(), 0.0) / static_cast<double>(logits.size());
    const double lse = largest + std::log(sum);
    const bool valid = is_class(label, logits.size());
    const double nll = valid ? lse - logits[static_cast<size_t>(label)] : 0;
    call.out[1].data[t] = lse;
    call.out[2].data[t] = nll;
    total += nll;
    if (valid && smoothing != 0) total += smoothing * (logits[static_cast<size_t>(label)] - mean);
  }
  call.out[0].data[0] = call.in[2].data[0] * total;
}

void cross_entropy_grad(const RefCall& call) {
  const double smoothing = std::get<CrossEntropyAttrs>(call.attrs).smoothing;
  const bool by_row = !call.in[0].type.shape.empty();
  for (size_t t = 0; t < dim(call.in[1], 0); ++t) {
    const auto logits = row(call.in[1], t), dlogits = row(call.out[0], t);
    const double label = call.in[2].data[t];
    if (!is_class(label, logits.size())) {
      std::fill(dlogits.begin(), dlogits.end(), 0.0);
      continue;
    }
    const double factor = call.in[0].data[by_row ? t : 0] * call.in[4].data[0];
    const double share = smoothing / static_cast<double>(logits.size());
    for (size_t v = 0; v < logits.size(); ++v) {
      const double target = share + (v == static_cast<size_t>(label) ? 1 - smoothing : 0);
      dlogits[v] = factor * (std::exp(logits[v] - call.in[3].data[t]) - target);
    }
  }
}

}  // namespace octet::reference
