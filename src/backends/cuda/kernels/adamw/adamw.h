// The update's kernels, and how adamw_step divides among the four of rows/update.h.
#pragma once

#include <vector>

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/rows/update.h"
#include "math/adamw.h"

namespace octet::cuda {

std::unique_ptr<Prepared> prepare_global_norm(const Request& request);
std::unique_ptr<Prepared> prepare_store_scaled(const Request& request);
std::unique_ptr<Prepared> prepare_load_state(const Request& request);
std::unique_ptr<Prepared> prepare_store_state(const Request& request);

struct MomentPlace {
  const void* from;
  void* to;
  const uint32_t* meta_from;  // of codes; of FP16 the bits of its scale
  uint32_t* meta_to;
};

// What a kernel of the step takes by value.
// The weight's amax while the blocks of a launch, or launches for the parts of a tensor, gather it;
// zeros again when the last block has given it away. Of a kernel's counters.
struct GatheredAmax {
  uint32_t amax, n_ended;
  uint8_t flag;
};

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
  // The launch before it in the stream is a step of another tensor: both may run at once.
  bool is_beside_last = false;
};

// Whether every address allows accesses of 16 bytes: those of a plan do.
bool is_aligned(const AdamwCall& call);

// Elements [call.begin, call.end), of whole tiles but for the last. The first gives the weight's
// amax too where it does a whole tensor, the others do not.
void launch_adamw_expanded(const AdamwCall& call, int n_sm, cudaStream_t stream);
void launch_adamw_groups(const AdamwCall& call, int n_sm, cudaStream_t stream);
void launch_adamw_wide(const AdamwCall& call, int n_sm, cudaStream_t stream);
void launch_adamw_any(const AdamwCall& call, int n_sm, cudaStream_t stream);

// A step by those of them that take it, each as far as its tiles are whole: settled once for a
// tensor.
class AdamwPieces {
 public:
  AdamwPieces() = default;
  AdamwPieces(const AdamwParams& p, bool is_aligned);

  void launch(const AdamwCall& call, int n_sm, cudaStream_t stream) const;
  // Whether the step gives the weight's amax.
  bool give_amax() const;

 private:
  struct Piece {
    void (*launch)(const AdamwCall& call, int n_sm, cudaStream_t stream);
    int64_t begin, end;
  };
  std::vector<Piece> all_;
};

}  // namespace octet::cuda
