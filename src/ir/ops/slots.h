// The operands and results of every op, by name: list.h says what they are. Where nothing else is
// said there all must be there.
#pragma once

#include "ir/slots.h"

namespace octet {

// elementwise.cpp, move.cpp, reduce.cpp
// Every op from one x to one y.
OCTET_SLOTS(Unary, (x), (y));
// Comparisons too.
OCTET_SLOTS(Binary, (a, b), (y));
OCTET_SLOTS(Select, (condition, yes, no), (y));
// fill, iota
OCTET_SLOTS(Make, (), (y));
// scale.cpp
OCTET_SLOTS(Rescale, (x, factor), (y));
OCTET_SLOTS(DelayedRescale, (x, factor), (y, next_factor));
OCTET_SLOTS(CustomScale, (x, like), (y));
OCTET_SLOTS(DataScale, (x), (data, scale));
OCTET_SLOTS(StoreScaled, (x, scale, attempt), (q));
OCTET_SLOTS(Concatenate, (part), (y));

// dot.cpp, gather.cpp
OCTET_SLOTS(Gemm, (a, b, c, scale_a, scale_b, scale_y), (y));
OCTET_SLOTS(BiasAdd, (x, bias), (y));
// gather, embedding
OCTET_SLOTS(Lookup, (table, index), (y));
// scatter_add, embedding_grad
OCTET_SLOTS(LookupGrad, (dy, index), (dtable));

// norm.cpp
// Of known statistics: y alone.
OCTET_SLOTS(RmsNorm, (x, weight, x_scale, known_rstd), (y, rstd));
OCTET_SLOTS(RmsNormGrad, (dy, x, rstd, weight, x_scale, addend), (dx, dweight, amax, nonfinite));
OCTET_SLOTS(LayerNorm, (x, weight, bias, x_scale, known_mean, known_rstd), (y, mean, rstd));
OCTET_SLOTS(LayerNormGrad, (dy, x, mean, rstd, weight, x_scale, addend),
            (dx, dweight, dbias, amax, nonfinite));

// rope.cpp, attention.cpp
OCTET_SLOTS(Rope, (x, positions), (y, amax, nonfinite));
OCTET_SLOTS(Attention, (q, k, v, doc_starts, positions), (o, lse));
OCTET_SLOTS(AttentionGrad, (dout, q, k, v, o, lse, doc_starts), (dq, dk, dv));
// cache.cpp
OCTET_SLOTS(CacheWrite, (cache, x, positions), (next_cache));

// activation.cpp, loss.cpp
OCTET_SLOTS(GatedAct, (gate, up, gate_scale, up_scale), (y));
OCTET_SLOTS(GatedActGrad, (dy, gate, up, gate_scale, up_scale), (dgate, dup, amax, nonfinite));
OCTET_SLOTS(Gelu, (x, x_scale), (y));
OCTET_SLOTS(GeluGrad, (dy, x, x_scale), (dx, amax, nonfinite));
OCTET_SLOTS(CrossEntropy, (logits, labels, inv_n), (loss, lse, nll));
OCTET_SLOTS(CrossEntropyGrad, (dloss, logits, labels, lse, inv_n), (dlogits));

// quantize.cpp
OCTET_SLOTS(AmaxOp, (x), (amax, nonfinite));
OCTET_SLOTS(AnyOf, (flag), (any));
OCTET_SLOTS(QuantScale, (amax), (scale));
OCTET_SLOTS(DelayedScale, (amax, history), (scale, next_history));
OCTET_SLOTS(PeriodicScale, (amax, before), (scale));
OCTET_SLOTS(Quantize, (x, scale), (q));
OCTET_SLOTS(QuantizeBoth, (x, scale), (q, q_transposed));
OCTET_SLOTS(QuantizeGroups, (x), (q, scale));
OCTET_SLOTS(Dequantize, (q, scale), (x));
OCTET_SLOTS(AddQuantize, (a, b), (sum, q, scale));
// fake_quantize is a Unary.

// amax_quantize.cpp, quantize_layers.cpp
OCTET_SLOTS(AmaxQuantize, (x, history, maximum), (q, scale, nonfinite, next_history, q_transposed));
OCTET_SLOTS(RmsNormQuantize, (x, weight, x_scale, given_scale, history, known_rstd),
            (q, scale, nonfinite, rstd, next_history, q_transposed));
OCTET_SLOTS(LayerNormQuantize,
            (x, weight, bias, x_scale, given_scale, history, known_mean, known_rstd),
            (q, scale, nonfinite, mean, rstd, next_history, q_transposed));
OCTET_SLOTS(GatedActQuantize, (gate, up, gate_scale, up_scale, given_scale, history),
            (q, scale, nonfinite, next_history, q_transposed, kept_gate, kept_gate_scale, kept_up,
             kept_up_scale));
OCTET_SLOTS(GeluQuantize, (x, x_scale, given_scale, history),
            (q, scale, nonfinite, next_history, q_transposed, kept_x, kept_x_scale));
// quantize_gradients.cpp
OCTET_SLOTS(GatedActGradQuantize, (dy, gate, up, gate_scale, up_scale, given_scale, history),
            (dgate, dup, scale, nonfinite, next_history, dgate_transposed, dup_transposed));

// update.cpp
OCTET_SLOTS(GlobalNorm, (clip, gradient), (norm, grad_scale, found_nonfinite));
OCTET_SLOTS(AdamwStep,
            (w, g, m, v, lr, c1, c2, grad_scale, found_nonfinite, master, m_meta, v_meta, attempt),
            (next_w, next_m, next_v, next_master, next_m_meta, next_v_meta, amax, nonfinite));

// ranks.cpp; take_shard and all_gather are Unary, sharded_norm has the slots of GlobalNorm
OCTET_SLOTS(PutShard, (x, shard), (y));
// reduce_scatter, all_reduce; squares: of reduce_scatter alone
OCTET_SLOTS(Reduce, (x, into, scale), (y, squares));

}  // namespace octet
