// One AdamW update of tensors in the caller's memory, with the trainer's kernels on the CPU.
#pragma once

#include <span>

#include "base/call_lock.h"
#include "base/thread_pool.h"
#include "math/moment.h"
#include "optim/optimizer.h"
#include "python/optimizer/octet_optimizer.h"

// The handle of the C interface.
struct OctetOptimizer {
  explicit OctetOptimizer(const OctetOptimizerOptions& options);

  octet::OptimPolicy policy;
  octet::MomentCoding m, v;
  octet::ThreadPool pool;
  octet::CallLock lock;
};

namespace octet {

OctetStateLayout state_layout(const OctetOptimizer& optimizer, int64_t n, int32_t dtype);
OctetFormats formats_of(const OctetOptimizer& optimizer);

// Of all gradients; NaN where one is not finite. Throws as step_tensors does.
double sum_of_squares(OctetOptimizer& optimizer, std::span<const OctetTensor> tensors);

// Throws Error{invalid_argument} for tensors that cannot be what they say they are; nothing is
// changed then.
void step_tensors(OctetOptimizer& optimizer, std::span<const OctetTensor> tensors, OctetStep& step);

void decode_moment(const OctetOptimizer& optimizer, const OctetMoment& moment);
void encode_moment(const OctetOptimizer& optimizer, const OctetMoment& moment);

}  // namespace octet
