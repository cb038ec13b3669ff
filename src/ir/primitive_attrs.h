// Attributes of primitives that move, reduce and contract, of cross_entropy and of
// fake_quantize; the rest: attrs.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ir/attr_enums.h"
#include "ir/types.h"

namespace octet {

// Opens fields(), and compares by it.
#define OCTET_ATTRS(Type)                       \
  bool operator==(const Type&) const = default; \
  template <typename Self, typename F>          \
  static void fields([[maybe_unused]] Self& s, [[maybe_unused]] F&& f)

struct NoAttrs {
  OCTET_ATTRS(NoAttrs) {}
};
// set_scale: the scale 2^log2; rebalance: the scale times 2^log2. backward: of the gradient that
// comes back through here.
struct ScaleAttrs {
  int64_t log2 = 0;
  Direction direction = Direction::forward;
  OCTET_ATTRS(ScaleAttrs) {
    f("log2", s.log2);
    if (!std::is_const_v<Self> || s.direction != Direction::forward) f("direction", s.direction);
  }
};
// integer_pow: x^n.
struct PowerAttrs {
  int64_t n = 1;
  OCTET_ATTRS(PowerAttrs) { f("n", s.n); }
};
// backward: of the gradient that comes back through here.
struct DynamicRescaleAttrs {
  RescaleNorm norm = RescaleNorm::l2;
  Direction direction = Direction::forward;
  OCTET_ATTRS(DynamicRescaleAttrs) { f("norm", s.norm), f("direction", s.direction); }
};
// custom_scale: the scale 2^log2 times the product of the scales of `like`, each to its power.
// backward: of the gradient that comes back, by the scale of the gradient that came into the
// sub-graph of this number (ir/custom_scale.h), then those of `like`.
struct CustomScaleAttrs {
  Shape powers;
  int64_t log2 = 0;
  Direction direction = Direction::forward;
  int64_t subgraph = -1;
  OCTET_ATTRS(CustomScaleAttrs) {
    f("powers", s.powers), f("log2", s.log2), f("direction", s.direction);
    f("subgraph", s.subgraph);
  }
};
struct CastInAttrs {
  Dtype dtype = Dtype::e4m3;
  Direction direction = Direction::forward;
  OCTET_ATTRS(CastInAttrs) { f("dtype", s.dtype), f("direction", s.direction); }
};
// store_scaled: stream, seed and first as AdamwAttrs' (attrs.h). keeps_positive: no positive number
// becomes 0.
struct StoreScaledAttrs {
  bool keeps_positive = false;
  int64_t stream = 0, seed = 0, first = 0;
  OCTET_ATTRS(StoreScaledAttrs) {
    f("keeps_positive", s.keeps_positive), f("stream", s.stream), f("seed", s.seed);
    f("first", s.first);
  }
};
struct FillAttrs {
  Shape shape;
  double value = 0;  // of every element
  OCTET_ATTRS(FillAttrs) { f("shape", s.shape), f("value", s.value); }
};
struct IotaAttrs {
  Shape shape;
  int64_t axis = 0;  // an element is its index along it
  OCTET_ATTRS(IotaAttrs) { f("shape", s.shape), f("axis", s.axis); }
};
struct BroadcastAttrs {
  Shape shape, axes;  // operand axis i becomes result axis axes[i]; the other result axes repeat
  OCTET_ATTRS(BroadcastAttrs) { f("shape", s.shape), f("axes", s.axes); }
};
struct ReshapeAttrs {
  Shape shape;
  OCTET_ATTRS(ReshapeAttrs) { f("shape", s.shape); }
};
struct TransposeAttrs {
  Shape perm;  // result axis i is operand axis perm[i]
  OCTET_ATTRS(TransposeAttrs) { f("perm", s.perm); }
};
struct SliceAttrs {
  Shape start, limit, stride;  // elements start, start + stride, ... below limit, per axis
  OCTET_ATTRS(SliceAttrs) { f("start", s.start), f("limit", s.limit), f("stride", s.stride); }
};
struct PadAttrs {
  Shape low, high, interior;  // elements of `value` per axis; interior: between two elements
  double value = 0;
  OCTET_ATTRS(PadAttrs) {
    f("low", s.low), f("high", s.high), f("interior", s.interior), f("value", s.value);
  }
};
struct AxisAttrs {
  int64_t axis = 0;
  OCTET_ATTRS(AxisAttrs) { f("axis", s.axis); }
};
struct AxesAttrs {
  Shape axes;  // of a reduction: those that vanish
  OCTET_ATTRS(AxesAttrs) { f("axes", s.axes); }
};
// reduce_window, per axis: windows of so many elements, `stride` apart, of x with `low` elements of
// the reduction's identity before it and `high` behind.
struct WindowAttrs {
  WindowReduction reduction = WindowReduction::sum;
  Shape window, stride, low, high;
  OCTET_ATTRS(WindowAttrs) {
    f("reduction", s.reduction), f("window", s.window), f("stride", s.stride), f("low", s.low);
    f("high", s.high);
  }
};
// dot: result axes are the batch axes, then a's free axes, then b's.
struct DotAttrs {
  Shape batch_a, batch_b, contract_a, contract_b;
  OCTET_ATTRS(DotAttrs) {
    f("batch_a", s.batch_a), f("batch_b", s.batch_b);
    f("contract_a", s.contract_a), f("contract_b", s.contract_b);
  }
};
// batched_gemm: y = factor op(a) op(b) + c; op transposes the last two axes or does not.
struct BatchedGemmAttrs {
  bool trans_a = false, trans_b = false;
  double factor = 1;
  OCTET_ATTRS(BatchedGemmAttrs) {
    f("trans_a", s.trans_a), f("trans_b", s.trans_b), f("factor", s.factor);
  }
};
// cross_entropy: the share of a label that is spread evenly over all classes, in [0, 1).
struct CrossEntropyAttrs {
  double smoothing = 0;
  OCTET_ATTRS(CrossEntropyAttrs) {
    if (!std::is_const_v<Self> || s.smoothing != 0) f("smoothing", s.smoothing);
  }
};
struct ScatterAddAttrs {
  int64_t rows = 0;  // of the result
  OCTET_ATTRS(ScatterAddAttrs) { f("rows", s.rows); }
};
// load_state, store_state: second, expand, math: of 8-bit data (math/moment.h), second: those of v,
// which never become 0. stochastic, stream, seed and first as AdamwAttrs'.
struct StateAttrs {
  bool second = false, expand = false, stochastic = false;
  PowerMath math = PowerMath::fast;
  int64_t stream = 0, seed = 0, first = 0;
  OCTET_ATTRS(StateAttrs) {
    f("second", s.second), f("expand", s.expand), f("stochastic", s.stochastic);
    f("math", s.math), f("stream", s.stream), f("seed", s.seed), f("first", s.first);
  }
};
// take_shard: the run of one rank (ir/sharding.h).
struct ShardAttrs {
  int64_t ranks = 1, rank = 0;
  OCTET_ATTRS(ShardAttrs) { f("ranks", s.ranks), f("rank", s.rank); }
};
// Between ranks. shape: of all_gather's result. ranks_a_host: in sums, neighbours that are added up
// first; 0: all ranks are added up in their order. in_place: all_gather's operand lies where this
// rank's shard lies in the result (plan/updates.h). squares: reduce_scatter gives the sum of its
// result's squares, too.
struct CollectiveAttrs {
  int64_t ranks = 1;
  RankReduction reduction = RankReduction::sum;
  Shape shape;
  bool in_place = false, squares = false;
  int64_t ranks_a_host = 0;
  OCTET_ATTRS(CollectiveAttrs) {
    f("ranks", s.ranks), f("reduction", s.reduction), f("shape", s.shape);
    f("in_place", s.in_place), f("squares", s.squares);
    if (!std::is_const_v<Self> || s.ranks_a_host != 0) f("ranks_a_host", s.ranks_a_host);
  }
};
// fake_quantize: groups along the rows, a row where they are as long or longer. power: scales are
// powers of two.
struct FakeQuantizeAttrs {
  Dtype dtype = Dtype::e4m3;
  double target = 448;
  int64_t group = 1;
  bool power = false;
  OCTET_ATTRS(FakeQuantizeAttrs) {
    f("dtype", s.dtype), f("target", s.target), f("group", s.group), f("power", s.power);
  }
};

}  // namespace octet
