// The kernels of the gated delta rule (params/gated_delta.h), and what they are launched with.
#pragma once

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/rows/gated_delta.h"

namespace octet::cuda {

struct DeltaTask {
  GatedDeltaParams p;
  int64_t n_chunks;
  const void *q, *k, *v, *log_decay, *beta;
  const int32_t* doc_starts;  // or nullptr
  const void* state;          // or nullptr, with next_state
  void *o, *next_state;
  // Of the gradient.
  const void* dout;
  void *dq, *dk, *dv, *dlog_decay, *dbeta;
  // Pieces of scratch (DeltaScratch).
  DeltaNumbers* numbers;
  float *solved, *scores, *blocked, *news, *dnews, *states, *dstates, *unit_dq, *unit_dk;
};

// Numbers, M, P and, backward, L of every chunk.
void launch_delta_chunks(const DeltaTask& t, cudaStream_t stream);
// Forward: o and, with a state, the next one; backward: N, and the states before chunks.
enum class DeltaScan : uint8_t { outputs, states };
void launch_delta_scan(const DeltaTask& t, DeltaScan what, cudaStream_t stream);
// E, dv, and the gradients of the states behind chunks, from the last chunk to the first.
void launch_delta_back(const DeltaTask& t, cudaStream_t stream);
// Gradients of unit rows of q and k, and of log_decay and beta, of every chunk.
void launch_delta_gradients(const DeltaTask& t, cudaStream_t stream);
// dq and dk, of the unit rows' of all heads that share them.
void launch_delta_rows(const DeltaTask& t, cudaStream_t stream);
}  // namespace octet::cuda
