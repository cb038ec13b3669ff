// All cases, family by family.

#include "op_cases/families.h"

namespace octet::op_cases {

const Cases& op_cases() {
  static const Cases cases = [] {
    Cases all;
    add_elementwise(all);
    add_moves(all);
    add_reductions(all);
    add_products(all);
    add_lookups(all);
    add_norms(all);
    add_pictures(all);
    add_attention(all);
    add_recurrences(all);
    add_activations(all);
    add_losses(all);
    add_scales(all);
    add_amax_results(all);
    add_fake_quantize(all);
    add_scaled_gemms(all);
    add_layouts(all);
    add_periodic_scales(all);
    add_limited_layers(all);
    add_blocks(all);
    add_rounded(all);
    add_stored(all);
    add_updates(all);
    add_stores(all);
    add_collectives(all);
    return all;
  }();
  return cases;
}

}  // namespace octet::op_cases
