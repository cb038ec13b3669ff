// Every kind of operation, in the order of the list in ir/ops/ops.def.
#pragma once

#include <cstdint>

namespace octet {

enum class OpCode : uint8_t {
#define OP(name, ...) name,
#include "ir/ops/ops.def"
};
inline constexpr int kOpCount = 0
#define OP(...) +1
#include "ir/ops/ops.def"
    ;

}  // namespace octet
