// Chains of steps that one launch makes (KernelRow::chain_kernel). For a token that is decoded: the
// rotations of queries and keys, the writes of keys and values into their caches, and attention of
// one query a text over these; all of bf16, or of fp16. Rotated rows are not stored but in the
// caches. Bits are those of the steps' own kernels. Needs no GPU.
#pragma once

#include <span>
#include <string_view>

#include "plan/kernel_row.h"

namespace octet::cuda {

// True if a node makes what the queries of an attention are rotated from, and none its positions:
// these were written before the kernel that is launched before the chain.
bool chain_reads_ahead(const NodeView& attention);

// Empty where the steps are no chain.
std::string_view chain_kernel(std::span<const RowStep> steps);

}  // namespace octet::cuda
