// The update's kernels, and how adamw_step divides among the four of rows/update.h.
//
//   adamw.cu     what launches them; `generic`: a warp a group of any format, and `wide`:
//   moments
//                of f32 or bf16, a few elements a thread (adamw_group.cuh has both)
//   adamw_tiles  `expanded` and `groups`: one loop over tiles of groups of 128 for every codec of
//                moments (adamw_codec.cuh, adamw_codes.cuh) x store of weights x gradient
//                (adamw_tile.cuh), of one tensor or of a list of them
//   adamw_norm   the gradients' norm, and what begins a step of many tensors
//   state.cu     states as f32 and back, f32 as scaled FP16
//
// Runs of N elements of a type known at run time are read and written by adamw_values.cuh alone.
#pragma once

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/optimizer_api.h"
#include "backends/cuda/rows/update.h"
#include "base/philox.h"
#include "math/adamw.h"

namespace octet::cuda {

std::unique_ptr<Prepared> prepare_global_norm(const Request& request);
void store_scaled(const StoreScaledParams& params, const Launch& args);
void load_state(const StateParams& params, const Launch& args);
void store_state(const StateParams& params, const Launch& args);

struct MomentPlace {
  const void* from;
  void* to;
  const uint32_t* meta_from;  // of codes; of FP16 the bits of its scale
  uint32_t* meta_to;
};

// The weight's amax while the blocks of a launch, or launches for the parts of a tensor, gather it;
// zeros again when the last block has given it away. Of a kernel's counters.
struct GatheredAmax {
  uint32_t amax, n_ended;
  uint8_t flag;
};

// The ten rounds' keys.
struct RoundKeys {
  uint32_t lo[10], hi[10];
};
inline RoundKeys round_keys(const RandomStream& random) {
  RoundKeys keys{};
  keys.lo[0] = static_cast<uint32_t>(random.name) ^ random.seed;
  keys.hi[0] = static_cast<uint32_t>(random.name >> 32);
  for (int i = 1; i < 10; ++i) {
    keys.lo[i] = keys.lo[i - 1] + 0x9E3779B9u;
    keys.hi[i] = keys.hi[i - 1] + 0xBB67AE85u;
  }
  return keys;
}

// Argument of a kernel of the step, by value.
struct AdamwCall {
  AdamwParams p;
  const void* g;
  const void *w_from, *master_from;
  void *w_to, *master_to;
  MomentPlace m, v;
  const float *lr, *c1, *c2, *grad_scale;
  const uint8_t* found_nonfinite;
  const uint32_t* attempt;  // nullptr: nothing is drawn

  uint32_t* amax;  // bits of the largest finite magnitude of the new weight; nullptr: not asked for
  uint8_t* flag;   // 1 where a new weight is not finite
  GatheredAmax* gathered;  // while the launches go on; nullptr: amax is not asked for
  int64_t begin, end;      // the elements of this launch; begin starts a group
  int64_t origin = 0;      // the place of element 0 in the whole tensor, for what is drawn
  RoundKeys keys = {};     // of stochastic weights, of p.stream
  // The launch before it in the stream is a step of another tensor: both may run at once.
  bool is_beside_last = false;
};

OCTET_HOST_DEVICE inline void set_numbers(AdamwParams& p, const OctetCudaNumbers& numbers) {
  p.beta1 = static_cast<float>(numbers.beta1);
  p.beta2 = static_cast<float>(numbers.beta2);
  p.rest1 = rest_of(numbers.beta1);
  p.rest2 = rest_of(numbers.beta2);
  p.eps = static_cast<float>(numbers.eps);
  p.weight_decay = static_cast<float>(numbers.weight_decay);
}

// True if every address allows accesses of 16 bytes: for adamw_pieces().
bool is_aligned(const AdamwCall& call);

// Elements [call.begin, call.end), of whole tiles but for the last. The first gives the weight's
// amax too where it is asked for, the others do not.
void launch_adamw_expanded(const AdamwCall& call, int n_sm, cudaStream_t stream);
void launch_adamw_groups(const AdamwCall& call, int n_sm, cudaStream_t stream);
void launch_adamw_wide(const AdamwCall& call, int n_sm, cudaStream_t stream);
void launch_adamw_any(const AdamwCall& call, int n_sm, cudaStream_t stream);

void launch_pieces(const AdamwPieces& pieces, const AdamwCall& call, int n_sm, cudaStream_t stream);

// A tensor, or a slice of one too long for one row. On the device begin_step (adamw_norm.cu)
// fills in what changes from step to step.
struct alignas(16) UpdateRow {
  AdamwCall call;  // without call.amax
  int32_t weight = 0;
  uint32_t index = 0, first_tile = 0, end_tile = 0;  // among those of its kind
  int64_t first = 0;                                 // the weight's element that is element 0 here
};
static_assert(sizeof(UpdateRow) <= 32 * 16);  // a warp copies one at once

// Rows of one kind; first_tile repeats theirs.
struct UpdateRows {
  const UpdateRow* rows;
  const uint32_t* first_tile;
  uint32_t n_rows, n_tiles;
  const uint8_t* found_nonfinite;  // 1: nothing is changed
};

// How a row is cut: kExpandedTile elements for launch_expanded_many, a group for launch_any_many.
inline constexpr int64_t kExpandedTile = 512;

// Gradients whose squares are summed as global_norm does; chunks of kNormChunk elements.
struct GradientList {
  const void* const* address;
  const int64_t* n;
  const uint8_t* dtype;
  const uint32_t* first_chunk;  // [n_gradients]
  uint32_t n_gradients;
  double* sums;     // one a chunk
  double* squares;  // result
};
void launch_squares(const GradientList& list, uint32_t n_chunks, cudaStream_t stream);

// Elements [first, first + n), at the places where these lie; first is a multiple of 128.
AdamwCall slice_of(const AdamwCall& call, int64_t first, int64_t n);

// All rows have this store and gradient (f32 or bf16), and is_aligned and takes_expanded.
void launch_expanded_many(const UpdateRows& rows, WeightStore store, Dtype gradient, int n_sm,
                          cudaStream_t stream);
// Any rows.
void launch_any_many(const UpdateRows& rows, int n_sm, cudaStream_t stream);

// Scalars of a weight, as update kernels read them (AdamwCall).
struct StepScalars {
  float lr, c1, c2;
};
struct CountedWeight {
  int64_t* t;
  int32_t numbers;
  int32_t gradient_bytes;  // of an element
};

// The beginning of a step on the device: the norm becomes a factor and a decision, the counters go
// on, and every row of the list gets what is new.
struct BeginCall {
  OctetCudaControl* control;
  const OctetCudaNumbers* numbers;
  const CountedWeight* weights;
  const char* const* gradients;
  StepScalars* scalars;
  UpdateRow* rows;
  uint32_t n_weights, n_rows;
  float clip;
  bool has_squares;
};
void launch_begin(const BeginCall& call, cudaStream_t stream);

// Copies to the device what the host holds now: it travels as parameters of kernels, so that
// nothing waits and a CUDA graph repeats it.
void launch_write(void* to, const void* from, size_t n_bytes, cudaStream_t stream);

}  // namespace octet::cuda
