// Seed-OSS: Llama's decoder with biases of queries, keys and values.
// Source: ByteDance Seed Team 2025. Names: SeedOssForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kHiddenAct,
    kMlpBias,
    {.field = "attention_bias", .key = "attention_bias", .absent = 1},
    {.field = "attention_out_bias", .key = "attention_out_bias", .absent = 0},
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 8, .zero_is_null = true},
    {.field = "head_dim", .key = "head_dim", .absent = 128},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 524288}};

}  // namespace

constinit const ModelDef kSeedOss = rotary_model<RotaryDecoder{.out_bias = OutBias::own}>(
    ModelKind::seed_oss, "seed_oss", "SeedOssForCausalLM", kKeys);

}  // namespace octet
