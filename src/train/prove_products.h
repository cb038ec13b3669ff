// GEMMs at a run's own sizes against the rule of the card's tensor cores (math/tensor_sums.h): what
// small sizes cannot show, since sums err with k, and the library chooses its algorithm by size.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "nn/model.h"
#include "plan/backend.h"

namespace octet {

// One GEMM of the run, distinct by types, shapes and attributes, on random codes with a mean of 0.3
// standard deviations.
struct ProductProof {
  std::string kernel;  // as plans print it
  int64_t m = 0, n = 0, k = 0;
  int64_t n_values = 0;  // that were compared: 64 x 64 of the first, the last and a random place
  int64_t n_other = 0;   // of these, with other bits
  std::string why_near = {};  // as KernelProof's
};

// Each GEMM with a rule of the functions that train and evaluate, that takes at most kMaxProofBytes
// of memory. `cpu` has the card's sums. Throws Error{device} at the first with another bit, with
// kernel, how many there are, and of the first its place and both patterns; where no algorithm of
// the library has these sums, at the first with a result that is not near (train/prove_kernels.h).
inline constexpr int64_t kMaxProofBytes = int64_t{8} << 30;
std::vector<ProductProof> prove_products(const RunConfig& config, const ModelSpec& spec,
                                         const Backend& device, const Backend& cpu);

}  // namespace octet
