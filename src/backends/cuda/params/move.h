// Element by element, and what only moves.
#pragma once

#include <cstdint>

#include "formats/dtype.h"

namespace octet::cuda {

// Ops in f32 are arithmetic on floats, IEEE operations only; the rest is in doubles, on any type.
enum class ElementOp : uint8_t {
  copy,
#define ELEMENT(op, ...) op,
#include "math/elementwise.def"
  select,  // operands condition, a, b
};
enum class ComputesIn : uint8_t { f32, f64 };
// copy and those in f32 come first.
inline constexpr int kFloatOps = 1
#define ELEMENT(op, arity, computes_in, ...) +(ComputesIn::computes_in == ComputesIn::f32)
#include "math/elementwise.def"
    ;
constexpr bool is_float_op(ElementOp op) {
  return static_cast<int>(op) < kFloatOps;
}

// elementwise, cast: y[i] = op(a[i], b[i], c[i]) for n elements, rounded once to y's type. Operands
// that the op lacks are not read. f32, bf16, fp16, i32, bool. y may be an operand of y's size.
enum class ElementKernel : uint8_t { wide, any, select, compare };  // target/choose/move.h
struct ElementParams {
  int64_t n = 0;
  Dtype a = Dtype::f32, b = Dtype::f32, c = Dtype::f32, y = Dtype::f32;
  ElementOp op = ElementOp::copy;
  uint8_t n_operands = 1;
  ElementKernel kernel = ElementKernel::wide;
  int8_t reserved = 0;
};

// axpby: y[i] = factor_a a[i] + factor_b b[i] for n elements of f32, bf16, fp16, in f32, by one
// product and one fused product and sum; factors f32 on the device. y may be an operand of y's
// size.
struct AxpbyParams {
  int64_t n = 0;
  Dtype a = Dtype::f32, b = Dtype::f32, y = Dtype::f32;
  int8_t reserved[5] = {};
};

// fill: every one of n elements of `bytes` bytes gets the low bytes of `pattern`.
struct FillParams {
  int64_t n = 0;
  int32_t bytes = 4;
  uint32_t pattern = 0;
};

// iota: result i32 y[i] = i / inner % extent.
struct IotaParams {
  int64_t n = 0, extent = 1, inner = 1;
};

// One copy between strided arrangements: dst[dst_start + sum_k i_k dst_stride[k]] =
// src[src_start + sum_k i_k src_stride[k]] for every index i below extent. In elements; a source
// stride of 0 repeats.
//
// By units of whole runs; by tiles that turn matrices, of whole sixteens of bytes or of any
// elements; or with the fill around its columns in one launch.
inline constexpr int kMaxRank = 8;
enum class CopyKernel : uint8_t { strided, turn_bytes, turn, pad };  // target/choose/move.h
struct StridedCopy {
  int32_t operand = 0;
  CopyKernel kernel = CopyKernel::strided;
  uint8_t reserved[3] = {};
  int64_t src_start = 0, dst_start = 0;
  int64_t rank = 0;
  int64_t extent[kMaxRank] = {}, src_stride[kMaxRank] = {}, dst_stride[kMaxRank] = {};
};

// transpose, broadcast, slice, pad, concatenate: fill the result (fill.n 0: not), then copies, each
// from one operand, of elements of fill.bytes bytes. Tail: n_copies StridedCopy.
struct CopyParams {
  int64_t n_copies = 0;
  FillParams fill = {};
};

// cache_write: rows of a cache [batch * capacity, row_bytes] replaced by those of x [batch * rows,
// row_bytes] at positions i32 [batch * rows]; those that are not in [0, capacity) are dropped. The
// result may be the operand.
struct CacheWriteParams {
  int64_t batch = 1, capacity = 1, rows = 1, row_bytes = 1;
};

}  // namespace octet::cuda
