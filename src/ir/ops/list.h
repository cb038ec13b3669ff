// Every op's constant, by family; one file per family in this folder. list.cpp puts them in
// OpCode's order.
#pragma once

#include "ir/op_def.h"

namespace octet::ops {

// elementwise.cpp: results have the operands' shape.
//   unary (x) -> y; binary (a, b) -> y; less, equal (a, b) -> bool; select(bool, yes, no); cast(x):
//   another float dtype
extern const OpDef kNeg, kAbs, kSign, kExp, kLog, kSqrt, kRsqrt, kSquare, kTanh, kErf, kLogistic,
    kSin, kCos;
extern const OpDef kAdd, kSub, kMul, kDiv, kMaximum, kMinimum;
extern const OpDef kLess, kEqual, kSelect, kCast, kStopGradient;
// scale.cpp: rescale(x, factor[]) -> x factor; power_of_two(x[]) -> the nearest one, 1 for what has
//   none; store_scaled(x, scale[], u32 attempt[]) -> FP16 of x / scale, rounded stochastically and
//   saturating; and what passes/scalify reads, identities elsewhere: set_scale(x), rebalance(x),
//   dynamic_rescale(x), delayed_rescale(x, factor[]) -> x, the factor of the next step,
//   custom_scale(x, like, ...), cast_in(x), which rounds to the dtype and back; data_scale(x) ->
//   data, scale[]
extern const OpDef kRescale, kSetScale, kRebalance, kDynamicRescale, kDelayedRescale, kCustomScale,
    kCastIn, kDataScale, kPowerOfTwo, kStoreScaled;
// move.cpp: fill(), iota() -> i32; broadcast, reshape, transpose, slice, pad (x); concatenate(x,
// ...)
extern const OpDef kFill, kIota, kBroadcast, kReshape, kTranspose, kSlice, kPad, kConcatenate;
// reduce.cpp: (x) -> y without the axes; argmax -> i32, the first of equals
extern const OpDef kReduceSum, kReduceMax, kArgmax;
// dot.cpp: dot(a, b); gemm(a[M,K], b[K,N], c[M,N]?, scale_a[]?, scale_b[]?) -> [M,N] = scale_a
// scale_b op(a) op(b) + c; bias_add(x[T,N], b[N]); column_sum(x[T,N]) -> [N]
extern const OpDef kDot, kGemm, kBiasAdd, kColumnSum;
// gather.cpp: gather(table[V,...], i32 index[...]) -> [index..., ...];
// scatter_add(updates[index..., ...], index) -> [rows,...];
//   embedding(table[V,D], ids[T]) -> [T,D]; embedding_grad(dy[T,D], ids[T]) {rows = V} -> [V,D].
//   A negative or too large index reads zeros and adds nothing.
extern const OpDef kGather, kScatterAdd, kEmbedding, kEmbeddingGrad;
// norm.cpp: rms_norm(x[T,D], w[D]?, x_scales?) -> y, rstd[T];
//   rms_norm_grad(dy, x, rstd, w?, x_scales?, c[T,D]?) -> dx + c, dw only with w;
//   layer_norm(x, w?, b?, x_scales?) -> y, mean[T], rstd[T];
//   layer_norm_grad(dy, x, mean, rstd, w?, x_scales?, c[T,D]?) -> dx + c, and dw, db with w
extern const OpDef kRmsNorm, kRmsNormGrad, kLayerNorm, kLayerNormGrad;
// rope.cpp: rope(x[T, heads*head_dim], i32 positions[T]) -> like x; its gradient is rope with
// `inverse`
extern const OpDef kRope;
// attention.cpp: attention(q[B*T, H*dh], k[B*T, Hkv*dh], v) -> o like q, lse[B*H*T];
//   attention_grad(do, q, k, v, o, lse) -> dq, dk, dv; both with i32 doc_starts[B*T] or without;
//   over a KV cache k and v have {capacity} rows a batch entry and i32 positions[B*T] stand behind
//   v
extern const OpDef kAttention, kAttentionGrad;
// cache.cpp: cache_write(cache[B*capacity, D], x[B*T, D], i32 positions[B*T]) -> the cache with x's
//   rows in their places
extern const OpDef kCacheWrite;
// activation.cpp: gated_act(gate, up) -> act(gate) * up; gated_act_grad(dy, gate, up) -> dgate,
// dup;
//   gelu(x); gelu_grad(dy, x) -> dx
extern const OpDef kGatedAct, kGatedActGrad, kGelu, kGeluGrad;
// loss.cpp: cross_entropy(logits[T,V], i32 labels[T], inv_n[]) -> loss[] = inv_n * sum nll, lse[T],
// nll[T]
//   (label -1: ignored, nll 0); cross_entropy_grad(dloss[], logits, labels, lse, inv_n) -> dlogits
extern const OpDef kCrossEntropy, kCrossEntropyGrad;
// quantize.cpp: amax(x or bool flag[], ...) -> amax[] over all x, bool nonfinite[], set where a
// flag is too; any_of(flag, ...) -> bool[]; quant_scale(amax[]) -> scale[];
//   delayed_scale(amax[], history[n]) -> scale[] from the history's maximum (amax where that is 0),
//   the history shifted by amax; quantize(x, scale[]) -> codes; quantize_both(x, scale[]) -> codes,
//   transposed codes; quantize_groups(x) -> codes in 1xG, Gx1 or BxB as the node says, their
//   scales; dequantize(codes, scale) -> x; add_quantize(a, b) -> a + b, and codes and scales of the
//   f32 sum in groups
extern const OpDef kAmax, kAnyOf, kQuantScale, kDelayedScale, kQuantize, kQuantizeBoth,
    kQuantizeGroups, kDequantize, kAddQuantize;
// periodic_scale.cpp: periodic_scale(amax[], before[]) -> scale[]: before where amax is 0
extern const OpDef kPeriodicScale;
// fake_quantize.cpp: fake_quantize(x) -> x as eight bits hold it, a scale for each group of a row
extern const OpDef kFakeQuantize;
// amax_quantize.cpp: amax_quantize(x, history[n]?, amax[] or bool flag[], ...)
//   -> codes, scale[], bool nonfinite[]; with a history: its next value; with `both`: the
//   transposed codes. The scale is of the maxima, and of x too where it `measures`
inline constexpr int kMaxMaxima = 8;
extern const OpDef kAmaxQuantize;
// quantize_layers.cpp: a layer and the per-tensor quantizer of its result in one:
//   rms_norm_quantize(x, w?, x_scales?, ..., rstd?);
//   layer_norm_quantize(x, w?, b?, x_scales?, ..., mean?, rstd?);
//   gated_act_quantize(gate, up, gate_scales?, up_scales?, ...); gelu_quantize(x, x_scales?, ...)
//   and at the dots, for all: scale[]?, history[n]?; statistics may be given with a scale
//   -> codes; without scale: scale[], bool nonfinite[]; the layer's statistics (rstd[T]; mean[T],
//   rstd[T]) where they are not given; with history: its next value (delayed_scale); with `both`:
//   the transposed codes
extern const OpDef kRmsNormQuantize, kLayerNormQuantize, kGatedActQuantize, kGeluQuantize;
// quantize_gradients.cpp: gated_act_grad_quantize(dy, gate, up, gate_scales?, up_scales?, scale[]?,
//   history[n]?) -> codes of both gradients with one scale, the rest as above
extern const OpDef kGatedActGradQuantize;
// update.cpp: global_norm(clip[], g, ...) -> norm[], grad_scale[] = clip > 0 ? min(1, clip / (norm
// + 1e-6)) : 1,
//   bool found_nonfinite[];
//   adamw_step(w, g, m, v, lr[], c1[] = 1-b1^t, c2[] = 1-b2^t, grad_scale[], bool
//   found_nonfinite[], master?, u32 m_meta?, u32 v_meta?, u32 attempt[]?) -> w, m, v, and master,
//   m_meta, v_meta that are there
extern const OpDef kGlobalNorm, kAdamwStep;
// ranks.cpp: take_shard(x) -> this rank's run of it, [s]; all_gather(x[s]) -> the whole;
//   reduce_scatter(x, into[s]?) -> [s]: this rank's run of into + the sum of all ranks' x;
//   all_reduce(x, into?) -> like x: the same of all of x, or the ranks' maximum;
//   sharded_norm(clip[], g, ...) -> as global_norm, of gradients whose shards the ranks hold
extern const OpDef kTakeShard, kAllGather, kReduceScatter, kAllReduce, kShardedNorm;

}  // namespace octet::ops
