#include "backends/cuda/target/choose/attention.h"

#include "base/error.h"

namespace octet::cuda {
namespace {

// Over a cache, blocks of fewer heads where there would be too few to fill the device; where there
// are fewer still, each slice of many keys has a block, which has room to wait for more keys at a
// time.
constexpr int64_t kEnoughBlocks = 256;

void choose_blocks(AttentionParams& p) {
  p.heads_of_block = 1;
  p.keys_at_once = kFewKeys;
  if (!p.cached || p.bias.is_there) return;
  const int64_t rows = attention_rows(p), group = p.heads / p.kv_heads;
  if (rows <= kEnoughBlocks) {
    p.keys_at_once = kManyKeys;
    if (rows <= kEnoughBlocks / 2) p.slices = static_cast<uint8_t>(slices_of(p.kv_len));
    return;
  }
  for (const uint8_t share : {4, 2}) {
    if (group % share != 0 || rows / share < kEnoughBlocks) continue;
    p.heads_of_block = share;
    return;
  }
}

KernelNames gradient_of(const AttentionParams& p) {
  KernelNames names = {"row_deltas", "backward_q", "backward_kv"};
  if (p.bias.has_gradient) names.emplace_back("backward_bias");
  return names;
}

}  // namespace

void choose_kernels(AttentionParams& p) {
  p.form = p.cached          ? AttentionForm::cached
           : is_square(p)    ? AttentionForm::square
           : p.bias.is_there ? AttentionForm::biased
                             : AttentionForm::any;
  choose_blocks(p);
}

KernelNames launches_of(KernelId kernel, const AttentionParams& p) {
  switch (kernel) {
    case KernelId::attention_library:
    case KernelId::attention_library_grad:
      return {"cudnn"};
    case KernelId::attention_tensor:
    case KernelId::attention_plain:
      return {"forward"};
    case KernelId::attention_cached:
      return p.slices == 1 ? KernelNames{"cached"} : KernelNames{"cached_slice", "join_slices"};
    case KernelId::attention_tensor_grad:
    case KernelId::attention_plain_grad:
      return gradient_of(p);
    default:
      break;
  }
  CHECK(false);
}

}  // namespace octet::cuda
