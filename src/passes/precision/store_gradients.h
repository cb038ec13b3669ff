// Parameters' gradients in few bytes: Typed -> Typed.
//
// Where a gradient that is a graph output is rounded (cast_in) and rescaled to its value, the data
// are stored in the format that they are rounded to, FP16 or codes with scale 1, and the value is
// made of them and of the scale:
//   rescale(cast_in(x), scale)  ->  rescale(cast(x), scale), or dequantize(quantize(x, 1), scale)
// The value has the same bits. So an update may keep data and scale, and make the value where it
// reads it (compile/compose.h).
#pragma once

#include "ir/builder.h"

namespace octet {

Graph store_gradients(const Graph& typed);

}  // namespace octet
