// global_norm: norm = sqrt of the sum of all squares; grad_scale = clip > 0 ? min(1, clip / (norm +
// 1e-6)) : 1; found_nonfinite: the norm is NaN or Inf.
//
// adamw_step (Loshchilov & Hutter 2019), in f32 and in this order, with g first times grad_scale:
//   m' = b1 m + (1-b1) g      v' = b2 v + ((1-b2) g) g
//   w' = w - lr ((m' / c1) / (sqrt(v' / c2) + eps) + wd w)
// c1 = 1 - b1^t and c2 = 1 - b2^t are operands. found_nonfinite: no byte of a result differs from
// its operand. May be absent:
//   master     i16: bits(w) << 16 plus it are the bits of the f32 master of a bf16 w; f32: the
//              master itself, w its nearest. Absent: w is the master (stochastic_w: bf16, rounded
//              so)
//   m_meta,    metadata of m and v, there exactly where they are quantized, in runs
//   v_meta     (math/moment.h); w takes the new m and v before they are quantized. Of v in FP16
//              f32[], the scale s that stays: v is read as v s and stored as store_scaled does with
//              keeps_positive, by stream_of_v, stochastic_v set; without next_v_meta
//   attempt    u32[], the attempted step, which keys the random words; there where any is drawn,
//              as for the amax of quantized moments
// Results: the next values of those that are there, then amax and flag of w, if asked.
#include "base/integer.h"
#include "formats/table.h"
#include "ir/fixed_scale.h"
#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

constexpr std::string_view kAdamw = "adamw_step";
using S = AdamwStep;

Results infer_global_norm(const Attrs&, Types in) {
  need_float("global_norm", "clip", in[0], {});
  for (size_t i = 1; i < in.size(); ++i) need_float("global_norm", "gradient", in[i]);
  return {real({}), real({}), {Dtype::boolean, {}}};
}

constexpr TensorType kOneF32{Dtype::f32, {}};

bool has_scaled_v(Types in) {
  return in[S::v].dtype == Dtype::fp16 && !absent(in, S::v_meta);
}

void need_scaled_v(const AdamwAttrs& a, Types in) {
  if (in[S::v_meta] != kOneF32 || !a.stochastic_v || a.stochastic_m || a.stochastic_w) {
    fail(kAdamw, "the scale of an fp16 v must be f32[], and v alone be rounded stochastically");
  }
}

void need_moment(const AdamwAttrs& a, Types in, ScalePlace moment) {
  const TensorType& type = in[moment.operand];
  const std::string_view name = defs::adamw_step.operands[moment.operand].name;
  need_float(kAdamw, name, type, in[S::w].shape);
  if (!type.is_scaled()) {
    if (moment.operand == S::v && has_scaled_v(in)) return need_scaled_v(a, in);
    if (!absent(in, moment.scale)) fail(kAdamw, "{} of {} has no metadata", name, to_string(type));
    return;
  }
  if (!is_moment_format(type.dtype) || type.granularity.scale != Dtype::u32) {
    fail(kAdamw, "{} must have a format and scales that moments may have, got {}", name,
         to_string(type));
  }
}

void need_master(const AdamwAttrs& a, Types in) {
  const TensorType& w = in[S::w];
  if (a.stochastic_w && (w.dtype != Dtype::bf16 || !absent(in, S::master))) {
    fail(kAdamw, "stochastic_w wants a bf16 w without master, got {}", to_string(w));
  }
  if (absent(in, S::master)) return;
  const TensorType& master = in[S::master];
  const bool remainder = w.dtype == Dtype::bf16 && master.dtype == Dtype::i16;
  const bool wide =
      (w.dtype == Dtype::bf16 || w.dtype == Dtype::fp16) && master.dtype == Dtype::f32;
  if ((!remainder && !wide) || master.shape != w.shape) {
    fail(kAdamw,
         "expected a bf16 w and an i16 w_lo, or a narrow w and an f32 master, of one shape, got {} "
         "and {}",
         to_string(w), to_string(master));
  }
}

void need_attempt(std::string_view op, Types in, SlotId attempt) {
  const TensorType type{Dtype::u32, {}};
  if (absent(in, attempt) || in[attempt] != type)
    fail(op, "stochastic rounding and quantized moments want the attempted step, u32[]");
}

Results infer_adamw_step(const Attrs& attrs, Types in) {
  const auto& a = std::get<AdamwAttrs>(attrs);
  need_float(kAdamw, "w", in[S::w]);
  need_float(kAdamw, "g", in[S::g], in[S::w].shape);
  for (const ScalePlace moment : defs::adamw_step.scales) need_moment(a, in, moment);
  if (in[S::m].is_scaled() && in[S::v].is_scaled() && in[S::m].granularity != in[S::v].granularity)
    fail(kAdamw, "m and v have runs of one length, got {} and {}", to_string(in[S::m]),
         to_string(in[S::v]));
  constexpr std::string_view kScalars[] = {"lr", "c1", "c2", "grad_scale"};
  for (size_t i = 0; i < std::size(kScalars); ++i) need_float(kAdamw, kScalars[i], in[4 + i], {});
  need_bool(kAdamw, "found_nonfinite", in[8]);
  need_shape(kAdamw, "found_nonfinite", in[8], {});
  need_master(a, in);
  if (a.stochastic_m || a.stochastic_v || a.stochastic_w || in[S::m].is_scaled() ||
      in[S::v].is_scaled())
    need_attempt(kAdamw, in, S::attempt);
  Results results(defs::adamw_step.own_results(), absent_type());
  constexpr std::pair<SlotId, SlotId> kNext[] = {
      {S::next_w, S::w},           {S::next_m, S::m},           {S::next_v, S::v},
      {S::next_master, S::master}, {S::next_m_meta, S::m_meta}, {S::next_v_meta, S::v_meta}};
  for (const auto& [result, operand] : kNext) {
    const bool stays = result == S::next_v_meta && has_scaled_v(in);
    if (!absent(in, operand) && !stays) results[result] = in[operand];
  }
  return with_amax_results(OpCode::adamw_step, attrs, std::move(results));
}

// Checks a state; rest: of one that load_state reads, what lies beside it.
void need_state(std::string_view op, const TensorType& x, const TensorType& rest) {
  if (x.is_scaled()) {
    if (!is_moment_format(x.dtype) || x.granularity.scale != Dtype::u32)
      fail(op, "expected a format and scales that states may have, got {}", to_string(x));
    return;
  }
  need_float(op, "x", x);
  if (x.dtype != Dtype::f32 && x.dtype != Dtype::bf16)
    fail(op, "expected a state in f32, bf16 or 8 bits, got {}", to_string(x));
  const TensorType remainder{Dtype::i16, x.shape};
  if (rest != absent_type() && (x.dtype != Dtype::bf16 || rest != remainder))
    fail(op, "expected the i16 remainder of a bf16 state, got {} of {}", to_string(rest),
         to_string(x));
}

Results infer_load_state(const Attrs&, Types in) {
  need_state("load_state", in[LoadState::x],
             absent(in, LoadState::rest) ? absent_type() : in[LoadState::rest]);
  return {{Dtype::f32, in[LoadState::x].shape}};
}

Results infer_store_state(const Attrs& attrs, Types in) {
  using T = StoreState;
  constexpr std::string_view kName = "store_state";
  const auto& a = std::get<StateAttrs>(attrs);
  const TensorType rest = absent(in, T::old_rest) ? absent_type() : in[T::old_rest];
  need_state(kName, in[T::old], rest);
  if (const TensorType wide{Dtype::f32, in[T::old].shape}; in[T::x] != wide)
    fail(kName, "x must be {}, got {}", to_string(wide), to_string(in[T::x]));
  need_bool(kName, "skip", in[T::skip]);
  need_shape(kName, "skip", in[T::skip], {});
  if (a.stochastic || in[T::old].is_scaled()) need_attempt(kName, in, T::attempt);
  return {in[T::old], rest};
}

Results infer_update(const Attrs& attrs, Types in) {
  const auto& a = std::get<UpdateAttrs>(attrs);
  need_float("update", "w", in[Update::w]);
  need_float("update", "g", in[Update::g], in[Update::w].shape);
  // Without scalars and states an absent attempt is the last operand, and trimmed.
  const bool is_bare = a.scalars == 0 && in.size() < Update::value;
  if (a.scalars < 0 || (!is_bare && Update::value + a.scalars > static_cast<int64_t>(in.size())))
    fail("update", "expected {} scalars, got {} operands", a.scalars, in.size());
  Results results = {in[Update::w]};
  const auto states =
      in.subspan(is_bare ? in.size() : static_cast<size_t>(Update::value + a.scalars));
  results.insert(results.end(), states.begin(), states.end());
  return results;
}

Values decompose_global_norm(Builder& b, const Node& node) {
  const ValueId clip = node.operands[0];
  ValueId sum = b.fill({}, 0);
  for (size_t i = 1; i < node.operands.size(); ++i) {
    const ValueId g = node.operands[i];
    const Shape all = iota_axes(b.shape(g).size());
    sum = b.add(sum, b.reduce_sum(b.unary(OpCode::square, g), all));
  }
  const ValueId norm = b.unary(OpCode::sqrt, sum);
  const ValueId zero = b.fill({}, 0);
  const ValueId one = b.fill({}, 1);
  const ValueId ratio = b.div(clip, b.plus(norm, 1e-6));
  const ValueId clips = b.less(zero, clip);
  // A NaN ratio gives 1.
  const ValueId is_smaller = b.less(ratio, one);
  const ValueId grad_scale = b.select(clips, b.select(is_smaller, ratio, one), one);
  // n - n is 0 for a finite n alone.
  const ValueId finite = b.equal(b.sub(norm, norm), zero);
  const ValueId found = b.less(b.select(finite, one, zero), one);
  return {norm, grad_scale, found};
}

// v as f32, and stored behind.
Values decompose_scaled_v(Builder& b, const Node& node) {
  AdamwAttrs attrs = std::get<AdamwAttrs>(node.attrs);
  const StoreScaledAttrs store{.keeps_positive = true,
                               .stream = stream_of_v(attrs.stream),
                               .seed = attrs.seed,
                               .first = attrs.first};
  attrs.stochastic_v = false;
  Values operands = node.operands;
  operands[S::v] = b.emit_typed(OpCode::rescale, NoAttrs{}, {operands[S::v], operands[S::v_meta]},
                                {Dtype::f32})[0];
  operands[S::v_meta] = kNoValue;
  if (!b.type(operands[S::m]).is_scaled()) operands[S::attempt] = kNoValue;
  Values results = b.emit(OpCode::adamw_step, attrs, operands);
  results.resize(node.results.size(), kNoValue);
  results[S::next_v] = b.emit1(OpCode::store_scaled, store,
                               {results[S::next_v], node.in(S::v_meta), node.in(S::attempt)});
  return results;
}

Values decompose_adamw_step(Builder& b, const Node& node, Said said) {
  const bool has_v_meta = node.in(S::v_meta) != kNoValue;
  if (has_v_meta && b.type(node.in(S::v)).dtype == Dtype::fp16) return decompose_scaled_v(b, node);
  if (emits_amax(node.attrs)) return emit_with_amax(b, node, said);
  for (size_t i = S::master; i < node.operands.size(); ++i) {
    if (!absent(node, i)) fail(kAdamw, "the bits of a remainder or of codes have no decomposition");
  }
  const auto& a = std::get<AdamwAttrs>(node.attrs);
  const ValueId w = node.operands[0];
  const Shape shape = b.shape(w);
  const auto everywhere = [&](size_t i) { return b.broadcast(node.operands[i], shape, {}); };
  const ValueId g = b.mul(node.operands[1], everywhere(7));
  const ValueId m = b.add(b.scaled(node.operands[2], a.beta1), b.scaled(g, 1 - a.beta1));
  const ValueId v = b.add(b.scaled(node.operands[3], a.beta2), b.mul(b.scaled(g, 1 - a.beta2), g));
  const ValueId root = b.unary(OpCode::sqrt, b.div(v, everywhere(6)));
  const ValueId step = b.div(b.div(m, everywhere(5)), b.plus(root, a.eps));
  const ValueId decayed = b.add(step, b.scaled(w, a.weight_decay));
  const ValueId next = b.sub(w, b.mul(everywhere(4), decayed));
  const ValueId found = everywhere(8);
  return {b.select(found, w, next), b.select(found, node.operands[2], m),
          b.select(found, node.operands[3], v)};
}

Cost cost_global_norm(const Graph& graph, const Node& node) {
  double flops = 0;
  for (const ValueId id : node.operands)
    flops += 2.0 * static_cast<double>(graph.type(id).n_elems());
  return {.flops = flops, .bytes = moved_bytes(graph, node)};
}
constexpr ScalePlace kScalesOfMoments[] = {{S::m, S::m_meta}, {S::v, S::v_meta}};
constexpr InplacePair kInplaceUpdate[] = {{S::next_w, S::w},           {S::next_m, S::m},
                                          {S::next_v, S::v},           {S::next_master, S::master},
                                          {S::next_m_meta, S::m_meta}, {S::next_v_meta, S::v_meta}};

}  // namespace

constinit const OpDef defs::global_norm =
    define(OpCode::global_norm, {.infer = infer_global_norm,
                                 .decompose = decompose_global_norm,
                                 .scale = scale::global_norm,
                                 .cost = cost_global_norm});
constinit const OpDef defs::adamw_step =
    define(OpCode::adamw_step, {.infer = infer_adamw_step,
                                .decompose = decompose_adamw_step,
                                .scale = scale::update,
                                .cost = cost_per_result<15>,
                                .inplace = kInplaceUpdate,
                                .scales = kScalesOfMoments});
constexpr ScalePlace kScaleOfState[] = {{LoadState::x, LoadState::rest}};
constexpr ScalePlace kScaleOfOld[] = {{StoreState::old, StoreState::old_rest}};
constexpr InplacePair kInplaceState[] = {{StoreState::y, StoreState::old},
                                         {StoreState::rest, StoreState::old_rest}};
constinit const OpDef defs::update =
    define(OpCode::update, {.infer = infer_update, .scale = scale::update});
constinit const OpDef defs::load_state =
    define(OpCode::load_state, {.infer = infer_load_state, .scales = kScaleOfState});
constinit const OpDef defs::store_state =
    define(OpCode::store_state,
           {.infer = infer_store_state, .inplace = kInplaceState, .scales = kScaleOfOld});

}  // namespace octet::ops
