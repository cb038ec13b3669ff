// The optimizer's kernels behind a C interface: plain data and addresses, so that one library
// serves every version of PyTorch (octet.optim calls it through ctypes), and any other program.
//
// The equations and their order are math/adamw.h, the storage of moments math/moment.h; the kernels
// and the order of sums are the trainer's: the same gradients give the same bits. Memory is the
// caller's. Functions return 0, or 1 + ErrorCode (base/error.h), and octet_optimizer_error() says
// in one line what happened to this thread's last call. One optimizer serves one thread at a time;
// calls of several are queued. A forked child goes on with its own threads.
#pragma once

#include <stdint.h>

#define OCTET_OPTIMIZER_VERSION 3

#ifdef __cplusplus
extern "C" {
#endif

typedef struct OctetOptimizer OctetOptimizer;

enum OctetDtype { OCTET_F32 = 0, OCTET_BF16 = 1, OCTET_FP16 = 2 };
enum OctetMaster { OCTET_NO_MASTER = 0, OCTET_REMAINDER_I16 = 1, OCTET_MASTER_F32 = 2 };

typedef struct OctetOptimizerOptions {
  const char* state_m;  // names of the configuration (optim.state_m): f32, bf16, e4m3+x, ...
  const char* state_v;
  const char* master;  // fp32, bf16_remainder, bf16_sr
  const char* math;    // fast, exact
  int64_t group;       // elements of a group of 8-bit codes, 1 to 1024
  uint32_t seed;       // of stochastic rounding
  int32_t n_threads;   // 0: one per core that this process may use
} OctetOptimizerOptions;

// What the states of a weight are. Groups run on through the elements as they lie in memory.
typedef struct OctetStateLayout {
  int32_t m_bytes, v_bytes;    // of an element: 4 (f32), 2 (bf16) or 1 (codes)
  int64_t m_groups, v_groups;  // u32 words of metadata; 0 where there are no codes
  int32_t master;              // OctetMaster: BF16 weights have a remainder, FP16 an f32 master
  int32_t reserved;
} OctetStateLayout;

// The same options as numbers, for kernels elsewhere (backends/cuda/optimizer_api.h): dtypes are
// those of formats/dtype.h, stores those of backends/cuda/params/update.h.
typedef struct OctetFormats {
  uint8_t m_dtype, m_expand, m_stochastic;
  uint8_t v_dtype, v_expand, v_stochastic;
  uint8_t exact;
  uint8_t wide[3];   // dtypes of weights by OctetDtype
  uint8_t store[3];  // of weights by OctetDtype
  uint8_t reserved[3];
} OctetFormats;

// One weight; dtypes are OctetDtype. Elements are aligned to their own size.
typedef struct OctetTensor {
  void* weight;
  const void* gradient;
  void* master;  // i16 or f32, as the layout says
  void *m, *v;   // n elements
  uint32_t *m_meta, *v_meta;
  int64_t n;
  uint64_t name;  // octet_optimizer_name(): random bits are keyed by it
  double lr, beta1, beta2, eps, weight_decay;
  int64_t* t;  // updates of this weight so far; each that is not skipped counts
  int32_t dtype, gradient_dtype;
} OctetTensor;

typedef struct OctetStep {
  double clip;             // largest norm of all gradients together; 0: none
  uint32_t attempt;        // counts every call, applied or not; random bits are keyed by it
  int32_t skip_nonfinite;  // 1: a step with NaN or Inf changes nothing; so it is too with a clip
  int32_t skipped;         // out: 1 where a gradient held NaN or Inf and nothing was changed
  int32_t has_squares;     // 1: a norm is that of `squares`, not of these tensors alone
  double grad_norm;        // out: before clipping; NaN where neither clip nor skip asks for it
  double squares;          // of all gradients, those of other processes among them
} OctetStep;

const char* octet_optimizer_error(void);
int octet_optimizer_version(void);
uint64_t octet_optimizer_name(const char* name);

int octet_optimizer_open(const OctetOptimizerOptions* options, OctetOptimizer** optimizer);
void octet_optimizer_close(OctetOptimizer* optimizer);
int octet_optimizer_layout(const OctetOptimizer* optimizer, int64_t n, int32_t dtype,
                           OctetStateLayout* layout);

int octet_optimizer_formats(const OctetOptimizer* optimizer, OctetFormats* formats);

// The sum of squares of all gradients, NaN where one holds NaN or Inf; other fields are not read.
int octet_optimizer_squares(OctetOptimizer* optimizer, const OctetTensor* tensors,
                            int64_t n_tensors, double* squares);

// One update of all tensors, in their order, with one norm.
int octet_optimizer_step(OctetOptimizer* optimizer, const OctetTensor* tensors, int64_t n_tensors,
                         OctetStep* step);

// A moment (0: m, 1: v) as f32 and back, rounded to nearest; `meta` is null where it has none.
typedef struct OctetMoment {
  int32_t which;
  int32_t reserved;
  void* stored;
  uint32_t* meta;
  float* values;
  int64_t n;
} OctetMoment;
int octet_optimizer_decode(const OctetOptimizer* optimizer, const OctetMoment* moment);
int octet_optimizer_encode(const OctetOptimizer* optimizer, const OctetMoment* moment);

#ifdef __cplusplus
}
#endif
