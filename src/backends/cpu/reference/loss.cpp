#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

bool is_class(double label, size_t n_classes) {
  return label >= 0 && label < static_cast<double>(n_classes);
}

}  // namespace

void cross_entropy(const RefCall& call) {
  double total = 0;
  for (size_t t = 0; t < dim(call.in[0], 0); ++t) {
    const auto logits = row(call.in[0], t);
    const double label = call.in[1].data[t];
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double e : logits) sum += std::exp(e - largest);
    const double lse = largest + std::log(sum);
    const bool valid = is_class(label, logits.size());
    const double nll = valid ? lse - logits[static_cast<size_t>(label)] : 0;
    call.out[1].data[t] = lse;
    call.out[2].data[t] = nll;
    total += nll;
  }
  call.out[0].data[0] = call.in[2].data[0] * total;
}

void cross_entropy_grad(const RefCall& call) {
  const double factor = call.in[0].data[0] * call.in[4].data[0];
  for (size_t t = 0; t < dim(call.in[1], 0); ++t) {
    const auto logits = row(call.in[1], t), dlogits = row(call.out[0], t);
    const double label = call.in[2].data[t];
    if (!is_class(label, logits.size())) {
      std::fill(dlogits.begin(), dlogits.end(), 0.0);
      continue;
    }
    for (size_t v = 0; v < logits.size(); ++v) {
      const double hit = v == static_cast<size_t>(label) ? 1 : 0;
      dlogits[v] = factor * (std::exp(logits[v] - call.in[3].data[t]) - hit);
    }
  }
}

}  // namespace octet::reference
