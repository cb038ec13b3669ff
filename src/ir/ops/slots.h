// The operands and results of every op, by name: ops.def says what they are.
#pragma once

#include "ir/slots.h"

namespace octet {

#define SLOTS(...) OCTET_SLOTS(__VA_ARGS__);
#include "ir/ops/ops.def"

}  // namespace octet
