// The C interface of the CUDA module to its AdamW kernels, for programs that own the memory and
// the streams: octet.optim.AdamW calls it on tensors of PyTorch. Plain data and addresses only.
//
// The equations are math/adamw.h, the storage of moments math/moment.h; the kernels and their bits
// are the trainer's, and many tensors take one launch. A step is queued on the caller's stream and
// nothing waits for it: counters, corrections, norm and the decision to skip live on the device, so
// that a CUDA graph may hold it. Functions return 0, or 1 and last_error() says in one line what
// happened to this thread's last call. One optimizer serves one thread at a time.
//
//   open -> plan -> place -> { write_numbers, write_gradients, squares, step } ... -> close
//
// After plan the caller allocates `table_bytes` on the device, zeros or not, and gives them to
// place; weights, states, table and control stay where they are until the next plan or close.
#pragma once

#include <stdint.h>

#define OCTET_CUDA_OPTIMIZER_VERSION 1

extern "C" {

// dtypes are those of formats/dtype.h, as numbers.
struct OctetCudaOptimizerOptions {
  int32_t device, group;
  uint8_t m_dtype, m_expand, m_stochastic;
  uint8_t v_dtype, v_expand, v_stochastic;
  uint8_t exact;  // powers with the same bits everywhere
  uint8_t reserved;
  uint32_t seed;
};

// A weight and its states on the device, all of n > 0 elements; alignment is that of an element,
// and the fast kernels want 16 bytes.
struct OctetCudaWeight {
  void* weight;
  void* master;  // i16, f32 or null, as `store` says
  void *m, *v;
  uint32_t *m_meta, *v_meta;  // null where the moments are not 8-bit
  int64_t* t;                 // updates so far; each that is not skipped counts
  int64_t n;
  uint64_t name;                  // hash of its name: random bits are keyed by it
  uint8_t dtype, gradient_dtype;  // f32, bf16, fp16
  uint8_t store;                  // WeightStore (params/update.h)
  uint8_t reserved;
  int32_t numbers;  // which of write_numbers'
};

struct OctetCudaNumbers {
  double beta1, beta2, eps, weight_decay;
  double lr;
  const float* lr_at;  // on the device, read in every step in place of lr; or null
};

// On the device, 64 bytes of zeros at first; read it whenever the stream has come by.
struct OctetCudaControl {
  double squares;    // of all gradients; others may add to it between squares and step
  double grad_norm;  // of the last step, before clipping; NaN where no squares were summed
  float grad_scale;
  uint32_t skipped;  // whether the last step changed nothing, since a gradient held NaN or Inf
  uint32_t attempt;  // counts every step; random bits are keyed by it
  uint32_t reserved;
  int64_t n_applied, n_skipped;
  int64_t reserved2[2];
};

struct OctetCudaPlan {
  int64_t table_bytes, n_weights;
};

struct OctetCudaOptimizerApi {
  int32_t version;
  int32_t reserved;
  const char* (*last_error)(void);
  int (*open)(const struct OctetCudaOptimizerOptions* options, void** optimizer);
  void (*close)(void* optimizer);
  int (*plan)(void* optimizer, const struct OctetCudaWeight* weights, int64_t n_weights,
              struct OctetCudaPlan* plan);
  int (*place)(void* optimizer, void* table, struct OctetCudaControl* control, void* stream);
  int (*write_numbers)(void* optimizer, const struct OctetCudaNumbers* numbers, int32_t n,
                       void* stream);
  int (*write_gradients)(void* optimizer, const uint64_t* addresses, int64_t n, void* stream);
  int (*squares)(void* optimizer, void* stream);
  // clip: largest norm, 0: none; has_squares: skip the step where control.squares is not finite.
  int (*step)(void* optimizer, double clip, int32_t has_squares, void* stream);
  // Each weight by launches of its own, as the trainer does it, from the next write_gradients on:
  // for comparisons.
  int (*one_by_one)(void* optimizer, int32_t is_wanted);
};

const struct OctetCudaOptimizerApi* octet_cuda_optimizer_api(void);
}
