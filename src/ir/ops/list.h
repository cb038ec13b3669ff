// Every op's constant, by family; one file per family in this folder. ops.def names it.
#pragma once

#include "ir/op_def.h"

namespace octet::ops {

// The most `maximum` that amax_quantize may have.
inline constexpr int kMaxMaxima = 8;

inline constexpr OpRow kRows[] = {
#define OP(op, Slots, Attrs, ...) \
  {.code = OpCode::op,            \
   .name = #op,                   \
   .operands = Slots::operands,   \
   .results = Slots::results,     \
   .attrs = default_attrs<Attrs> __VA_OPT__(, ) __VA_ARGS__},
#include "ir/ops/ops.def"
};

namespace defs {
#define OP(op, ...) extern const OpDef op;
#include "ir/ops/ops.def"
}  // namespace defs

constexpr const OpRow& row(OpCode code) {
  return kRows[static_cast<size_t>(code)];
}
// Its line of the list with its rules.
constexpr OpDef define(OpCode code, const OpRules& rules) {
  return {row(code), rules};
}

}  // namespace octet::ops
