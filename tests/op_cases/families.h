// The families of the table.
#pragma once

#include "op_cases/op_cases.h"

namespace octet::op_cases {

// primitives.cpp
void add_elementwise(Cases& all);
void add_moves(Cases& all);
void add_reductions(Cases& all);
void add_lookups(Cases& all);
// layers.cpp
void add_products(Cases& all);
void add_norms(Cases& all);
void add_attention(Cases& all);
void add_activations(Cases& all);
void add_losses(Cases& all);
void add_updates(Cases& all);
void add_stores(Cases& all);
void add_collectives(Cases& all);
// recurrences.cpp
void add_recurrences(Cases& all);
// pictures.cpp
void add_pictures(Cases& all);
// eight_bit.cpp
void add_scales(Cases& all);
void add_limited_layers(Cases& all);
void add_periodic_scales(Cases& all);
void add_blocks(Cases& all);
void add_rounded(Cases& all);
void add_fake_quantize(Cases& all);
void add_amax_results(Cases& all);
void add_stored(Cases& all);
// eight_bit_products.cpp
void add_layouts(Cases& all);
void add_scaled_gemms(Cases& all);

}  // namespace octet::op_cases
