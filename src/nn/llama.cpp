// Llama: pre-norm decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU.
// Source: Touvron et al. 2023 (Llama 2); rotary scaling "llama3" as in the Llama 3.1 release.
// Names: LlamaForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {kRmsEps, kHiddenAct, kAttentionBias, kMlpBias};

}  // namespace

constinit const ModelDef kLlama =
    rotary_model(ModelKind::llama, "llama", "LlamaForCausalLM", kKeys);

}  // namespace octet
