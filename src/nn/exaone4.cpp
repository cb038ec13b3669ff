// EXAONE 4: norms on what attention and feed-forward block add and of each head's queries and keys;
// with a sliding window in three of four layers the fourth has no rotary positions.
// Source: LG AI Research 2025. Names: Exaone4ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "rms_norm_eps", .absent = 1e-5},
    kHiddenAct,
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 32},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 2048},
    {.field = "sliding_window", .key = "sliding_window", .absent = 4096, .zero_is_null = true},
    kLayerTypes};

constexpr ModelDef definition() {
  ModelDef def = rotary_model<RotaryDecoder{.place = NormPlace::after, .qk_norm = QkNorm::head}>(
      ModelKind::exaone4, "exaone4", "Exaone4ForCausalLM", kKeys);
  def.full_every = 4;
  def.reads_window_pattern = true;
  def.rotated = RotatedLayers::windows_if_any;
  return def;
}

}  // namespace

constinit const ModelDef kExaone4 = definition();

}  // namespace octet
