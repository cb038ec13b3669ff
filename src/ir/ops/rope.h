// The angles of rotary position embedding (Su et al. 2021), as Hugging Face's Llama defines them.
//
// Within a head of size d, element i < d/2 pairs with element i + d/2. At position p the pair turns
// by p * f[i]:
//   y[i] = x[i] cos - x[i + d/2] sin        y[i + d/2] = x[i + d/2] cos + x[i] sin
// and by the negative angle where `inverse` is set (the gradient).
#pragma once

#include <vector>

#include "ir/attrs.h"

namespace octet {

// f[i], i < head_dim/2: theta^(-2i/head_dim), then by kind of scaling, with w = 2 pi / f and o =
// original_max_position:
//   linear: f / factor
//   llama3: f / factor where w > o / low_freq_factor; f where w < o / high_freq_factor; between
//   them
//     (1 - s) f / factor + s f, s = (o / w - low_freq_factor) / (high_freq_factor -
//     low_freq_factor)
//   dynamic: theta grows by (factor n / o - factor + 1)^(d / (d - 2)), n = max(seq, o)
//   yarn (Peng et al. 2023): (1 - s) f + s f / factor, s = (i - low) / (high - low) within [0, 1];
//     low and high are the i, within [0, d - 1], that turn beta_fast and beta_slow times over o:
//     d ln(o / (2 pi beta)) / (2 ln theta), with truncate rounded outwards
//   longrope (Ding et al. 2024): f / divisors[i]
std::vector<double> rope_frequencies(const RopeAttrs& attrs);

}  // namespace octet
