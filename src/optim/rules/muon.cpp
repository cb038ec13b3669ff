// Muon (Jordan et al. 2024): steepest descent under the spectral norm, of matrices [rows, cols].
//   m' = momentum m + g    u = nesterov ? g + momentum m' : m'
//   w' = w - lr (f O(u) + wd w),  f: MuonScale
// O(u): five Newton-Schulz steps X <- a X + (b A + c A A) X, A = X X^T, from X = u / (|u| + 1e-6)
// (Frobenius); of a tall matrix those of its transpose, A = X^T X on the right. Products are BF16
// with f32 sums, rounded once with what is added to them, as PyTorch's are; those of one shape are
// one batch, which the ranks share.
#include <algorithm>
#include <cmath>

#include "base/integer.h"
#include "ir/sharding.h"
#include "optim/rules/stored.h"

namespace octet {
namespace {

// Elements [start, start + n) along an axis.
ValueId part(Builder& b, ValueId x, int64_t axis, int64_t start, int64_t n) {
  return n == b.shape(x)[static_cast<size_t>(axis)] ? x : b.slice(x, axis, start, n);
}

// `size` elements of a vector from `start` on: a view where it is made of such parts, in whole
// groups of kShardMultiple elements, else a copy.
ValueId run_of(Builder& b, ValueId x, int64_t start, int64_t size) {
  const int64_t n = b.type(x).n_elems();
  const bool is_part = size % kShardMultiple == 0 && n % size == 0 && start % size == 0;
  if (!is_part || n == size) return part(b, x, 0, start, size);
  return b.emit1(OpCode::take_shard, ShardAttrs{.ranks = n / size, .rank = start / size}, {x});
}

// The ranks' x, one behind the other, each in whole groups of kShardMultiple elements.
ValueId gather(Builder& b, ValueId x, int64_t ranks) {
  const int64_t n = b.type(x).n_elems(), shard = shard_elems(n, 1);
  x = b.reshape(x, {n});
  if (shard != n) x = b.emit1(OpCode::pad, PadAttrs{{0}, {shard - n}, {0}}, {x});
  const CollectiveAttrs attrs{.ranks = ranks, .shape = {ranks * shard}};
  return b.emit1(OpCode::all_gather, attrs, {x});
}

// Matrices of one shape whose updates want them whole, dealt out among the ranks that hold shards
// of them: of n matrices each of D ranks works on count = ceil(n / D), the last ranks on some that
// others work on too. One rank has all.
class Deal {
 public:
  explicit Deal(std::span<UpdateBuilder> all);

  // The whole matrices [rows, cols] that this rank works on, of its shards of all matrices.
  ValueIds out(const ValueIds& shards);
  // This rank's shards of all the matrices, of the results [count, rows, cols].
  ValueIds back(ValueId results);

 private:
  int64_t first(int64_t rank) const { return std::min(rank * count_, n_ - count_); }

  Builder& b_;
  const UpdateAttrs& attrs_;
  int64_t n_, count_, size_;  // matrices, those of a rank, elements of one
};

Deal::Deal(std::span<UpdateBuilder> all)
    : b_(all[0].b()),
      attrs_(all[0].attrs()),
      n_(std::ssize(all)),
      count_(ceil_div(n_, attrs_.ranks)),
      size_(n_elems(attrs_.shape)) {}

ValueIds Deal::out(const ValueIds& shards) {
  if (attrs_.ranks == 1) return shards;
  const int64_t shard = b_.type(shards[0]).n_elems(), mine = first(attrs_.rank);
  const ValueId concatenated = b_.concatenate(shards, 0);
  const ValueId all = b_.reshape(gather(b_, concatenated, attrs_.ranks), {attrs_.ranks, n_, shard});
  ValueIds whole;
  for (int64_t i = mine; i < mine + count_; ++i) {
    const ValueId flat = b_.reshape(part(b_, all, 1, i, 1), {attrs_.ranks * shard});
    whole.push_back(b_.reshape(part(b_, flat, 0, 0, size_), attrs_.shape));
  }
  return whole;
}

ValueIds Deal::back(ValueId results) {
  const bool is_dealt = attrs_.ranks > 1;
  const ValueId all =
      is_dealt ? gather(b_, results, attrs_.ranks) : b_.reshape(results, {n_ * size_});
  const int64_t stride = b_.type(all).n_elems() / attrs_.ranks;
  const ShardAttrs own{.ranks = attrs_.ranks, .rank = attrs_.rank};
  ValueIds shards;
  for (int64_t i = 0; i < n_; ++i) {
    const int64_t rank = i / count_, at = rank * stride + (i - first(rank)) * size_;
    const ValueId whole = b_.reshape(run_of(b_, all, at, size_), attrs_.shape);
    shards.push_back(is_dealt ? b_.emit1(OpCode::take_shard, own, {whole}) : whole);
  }
  return shards;
}

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kSteps = 5;

// X as `number` times y, so that a step is three products and nothing else:
//   A = number^2 y y^T    P = A + c/b A A    y <- y + b/a P y, number <- a number
struct Orthogonal {
  ValueId y = kNoValue;  // [count, rows, cols] BF16
  double number = 1;
};

class NewtonSchulz {
 public:
  explicit NewtonSchulz(UpdateBuilder& u)
      : u_(u), is_tall_(u.attrs().shape[0] > u.attrs().shape[1]) {}

  // The Orthogonal of each of these BF16 matrices.
  Orthogonal run(const ValueIds& matrices) {
    Builder& b = u_.b();
    ValueIds scaled;
    for (const ValueId x : matrices) scaled.push_back(normalized(x));
    const Shape& shape = u_.attrs().shape;
    const ValueId concatenated = scaled.size() == 1 ? scaled[0] : b.concatenate(scaled, 0);
    Orthogonal x{b.reshape(concatenated, {std::ssize(scaled), shape[0], shape[1]}), 1 / kNorm};
    for (int i = 0; i < kSteps; ++i) x = step(x);
    return x;
  }

 private:
  // Norm that global_norm clips to: below the 1e-6 that it adds to the norm, so that it clips all.
  static constexpr double kNorm = 0x1p-20;

  ValueId normalized(ValueId x) {
    Builder& b = u_.b();
    const ValueIds norm = b.emit_typed(OpCode::global_norm, NoAttrs{}, {u_.constant(kNorm), x},
                                       {Dtype::f32, Dtype::f32, Dtype::boolean});
    return b.emit_typed(OpCode::rescale, NoAttrs{}, {x, norm[GlobalNorm::grad_scale]},
                        {Dtype::bf16})[0];
  }
  ValueId product(const BatchedGemmAttrs& attrs, ValueId x, ValueId z, ValueId c = kNoValue) {
    ValueIds operands = {x, z};
    if (c != kNoValue) operands.push_back(c);
    return u_.b().emit_typed(OpCode::batched_gemm, attrs, operands, {Dtype::bf16})[0];
  }

  Orthogonal step(const Orthogonal& x) {
    const ValueId a = product(
        {.trans_a = is_tall_, .trans_b = !is_tall_, .factor = x.number * x.number}, x.y, x.y);
    const ValueId p = product({.factor = kC / kB}, a, a, a);
    const BatchedGemmAttrs last{.factor = kB / kA};
    return {is_tall_ ? product(last, x.y, p, x.y) : product(last, p, x.y, x.y), kA * x.number};
  }

  UpdateBuilder& u_;
  bool is_tall_;
};

double factor(const UpdateBuilder& u) {
  const Shape& shape = u.attrs().shape;
  const auto rows = static_cast<double>(shape[0]), cols = static_cast<double>(shape[1]);
  const bool is_in_out = u.policy().in_out.contains(u.parameter());
  const double outputs_per_input = is_in_out ? cols / rows : rows / cols;
  return u.policy().muon_scale == MuonScale::original ? std::sqrt(std::max(1.0, outputs_per_input))
                                                      : 0.2 * std::sqrt(std::max(rows, cols));
}

// Without momentum the gradient itself, whose factor changes no direction.
ValueId direction(UpdateBuilder& u, StoredUpdate& update) {
  const ValueId along = update.direction(update.gradient(), u.constant(1), Dtype::bf16).value;
  return u.b().type(along).dtype == Dtype::bf16 ? along : u.b().cast(along, Dtype::bf16);
}

void build_muon(std::span<UpdateBuilder> all) {
  std::vector<StoredUpdate> updates;
  ValueIds directions;
  for (UpdateBuilder& u : all) {
    u.begin();
    directions.push_back(direction(u, updates.emplace_back(u)));
  }
  all[0].begin();
  Deal deal(all);
  const Orthogonal result = NewtonSchulz(all[0]).run(deal.out(directions));
  const ValueIds changes = deal.back(result.y);
  for (size_t i = 0; i < all.size(); ++i) {
    UpdateBuilder& u = all[i];
    u.begin();
    const double way = -result.number * factor(u);
    const double decay = u.attrs().decay ? u.policy().weight_decay : 0;
    const ValueId lr = u.lr(), one = u.constant(1);
    const ValueId kept = decay == 0 ? one : u.difference(one, u.product(lr, u.constant(decay)));
    updates[i].store_weight(
        u.sum({updates[i].weight(), kept}, {changes[i], u.product(lr, u.constant(way))}));
  }
}

}  // namespace

constinit const UpdateRule kMuonRule = {
    .kind = UpdateKind::muon, .states = momentum_states, .build_together = build_muon};

}  // namespace octet
