// OLMo 3: OLMo 2 with a sliding window in three of four layers, whose angles no scaling changes.
// Source: Olmo Team 2025. Names: Olmo3ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "rms_norm_eps", .absent = 1e-5},
    kHiddenAct,
    kAttentionBias,
    {.field = "sliding_window", .key = "sliding_window", .absent = 4096, .zero_is_null = true},
    kLayerTypes,
    {.field = "rope_theta", .key = "rope_theta", .newer = "rope/rope_theta", .absent = 500000},
    {.field = "window_rope_theta", .key = "rope/sliding_attention/rope_theta", .absent = 500000}};
constexpr HfNeutral kNeutrals[] = {
    {.key = "rope/sliding_attention/rope_type", .value = "\"default\""},
    {.key = "rope/sliding_attention/type", .value = "\"default\""},
};

constexpr ModelDef definition() {
  ModelDef def =
      rotary_model<RotaryDecoder{.place = NormPlace::after, .qk_norm = QkNorm::projection}>(
          ModelKind::olmo3, "olmo3", "Olmo3ForCausalLM", kKeys);
  def.full_every = 4;
  def.hf_neutrals = kNeutrals;
  return def;
}

}  // namespace

constinit const ModelDef kOlmo3 = definition();

}  // namespace octet
