// Granite 3 and 4, dense: Llama's decoder with four factors, of embedding, scores, what layers add,
// and logits.
// Source: Granite Team 2024. Names: GraniteForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kHiddenAct,
    kAttentionBias,
    kMlpBias,
    {.field = "embedding_multiplier", .key = "embedding_multiplier", .absent = 1},
    {.field = "attention_multiplier", .key = "attention_multiplier", .absent = 1},
    {.field = "residual_multiplier", .key = "residual_multiplier", .absent = 1},
    {.field = "logits_scaling", .key = "logits_scaling", .absent = 1}};

}  // namespace

constinit const ModelDef kGranite =
    rotary_model(ModelKind::granite, "granite", "GraniteForCausalLM", kKeys);

}  // namespace octet
