#include "runtime/collective_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "ir/op_def.h"
#include "ir/ops/slots.h"
#include "plan/streams.h"
#include "runtime/known_numbers.h"
#include "runtime/trial_graph.h"

namespace octet {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kClip = 0.5f;

// The scale of eight-bit numbers; a power of two, so that sums stay exact.
float scale_of(const CollectiveKind& kind, int pass) {
  return is_quantized(kind.x) ? static_cast<float>(1 + pass % 2) : 1.0f;
}

CollectiveKind kind_of(const Graph& graph, const Node& node) {
  const auto& attrs = std::get<CollectiveAttrs>(node.attrs);
  CollectiveKind kind{.op = node.op, .reduction = attrs.reduction};
  kind.x = graph.type(node.operands[0]).dtype;
  kind.y = graph.type(node.results[0]).dtype;
  kind.ranks_a_host = attrs.ranks_a_host;
  kind.has_into =
      !is_of_norm(kind) && node.operands.size() > Reduce::into && node.in(Reduce::into) != kNoValue;
  kind.in_place = attrs.in_place;
  kind.squares = attrs.squares;
  return kind;
}

Plan plan_of(const CollectiveKind& kind, const std::vector<int64_t>& sizes, RankPlace ranks,
             const Catalogue& catalogue) {
  const Graph graph = trial_graph(kind, ranks.n_ranks, sizes);
  Layout layout;
  layout.rank = ranks.rank;
  layout.add_inputs(graph);
  return make_plan(graph, layout, catalogue);
}

// Bits for all_gather: bytes that are no numbers at all, by the rank that they are of.
uint32_t gathered_bits(int64_t place, int rank, int pass) {
  uint32_t word = static_cast<uint32_t>(place + 1000 * rank + 100000 * pass + 1) * 0x9E3779B1u;
  word ^= word >> 15;
  return word * 0x85EBCA6Bu;
}
// In place they are finite numbers: they are made by a copy that may give a NaN other bits.
KnownRow gathered_row(const CollectiveKind& kind, int rank, int pass) {
  const bool is_number = kind.in_place && bytes_of(kind.x, 1) == 2;
  return {bytes_of(kind.x, 1), [=](int64_t place) {
            const uint32_t bits = gathered_bits(place, rank, pass);
            return is_number ? 0x2000u | bits >> 19 : bits >> 8;
          }};
}

// Maxima are of magnitudes.
int number_at(const CollectiveKind& kind, int64_t place, int rank, int pass) {
  return known_number(place, rank, pass) + (is_max(kind) && kind.x == Dtype::f32 ? 7 : 0);
}
KnownRow own_row(const CollectiveKind& kind, int rank, int pass) {
  if (op_def(kind.op).gathers) return gathered_row(kind, rank, pass);
  return {kind.x, [=](int64_t place) {
            const auto number = static_cast<float>(number_at(kind, place, rank, pass));
            return kind.x == Dtype::boolean && number < 8 ? 0.0f : number;
          }};
}
// The number that a sum of all begins with is the same on all ranks.
int addend_at(const CollectiveKind& kind, int64_t place, int rank, int pass) {
  return known_addend(place, op_def(kind.op).scatters ? rank : 0, pass);
}
KnownRow into_row(const CollectiveKind& kind, int rank, int pass) {
  return {kind.y,
          [=](int64_t place) { return static_cast<float>(addend_at(kind, place, rank, pass)); }};
}

// The result of all ranks' numbers.
KnownRow reduced_row(const CollectiveKind& kind, RankPlace ranks, int pass) {
  return {kind.y, [=](int64_t place) {
            float sum = 0, top = -8;
            for (int r = 0; r < ranks.n_ranks; ++r) {
              const auto number = static_cast<float>(number_at(kind, place, r, pass));
              sum += number * scale_of(kind, pass);
              top = std::max(top, number);
            }
            if (kind.has_into) sum += static_cast<float>(addend_at(kind, place, ranks.rank, pass));
            if (kind.y == Dtype::boolean) return top < 8 ? 0.0f : 1.0f;
            return is_max(kind) ? top : sum;
          }};
}

// A norm has a NaN every other pass alone, so that there is one without.
bool has_nan(const CollectiveKind& kind, int pass) {
  const bool is_squared = is_of_norm(kind) || kind.squares;
  if (op_def(kind.op).gathers || kind.x == Dtype::boolean) return false;
  return !is_squared || pass % 2 == 1;
}

// The result of a rank, row by row: `first` and `count` of the tensor of n elements.
class Expected {
 public:
  Expected(const CollectiveKind& kind, RankPlace ranks, int64_t n, int pass)
      : kind_(kind), n_(n), width_(bytes_of(kind.y, 1)), shard_(shard_elems(n, ranks.n_ranks)) {
    const bool scatters = op_def(kind.op).scatters;
    first_ = scatters ? ranks.rank * shard_ : 0;
    count_ = scatters ? shard_ : n;
    if (op_def(kind.op).gathers) {
      for (int r = 0; r < ranks.n_ranks; ++r) rows_.push_back(gathered_row(kind, r, pass));
      return;
    }
    rows_.push_back(reduced_row(kind, ranks, pass));
    if (kind.has_into) behind_.push_back(into_row(kind, ranks.rank, pass));
    if (has_nan(kind, pass)) nan_ = place_of_nan(n, pass);
  }
  int64_t count() const { return count_; }
  // The first of these `count()` elements that differs; -1: none does.
  int64_t find_difference(const std::byte* got) const {
    for (int64_t i = 0; i < count_; i += kKnownRow) {
      const int64_t n = std::min(kKnownRow, count_ - i), at = first_ + i;
      const bool is_plain = at + n <= n_ && (nan_ < at || nan_ >= at + n);
      if (is_plain &&
          std::memcmp(got + i * width_, row_at(at), static_cast<size_t>(n * width_)) == 0)
        continue;
      for (int64_t j = i; j < i + n; ++j) {
        if (!equals(j, bits_at(got, j, width_))) return j;
      }
    }
    return -1;
  }
  // The sum of squares of a result without NaN. All whole rows hold the same numbers.
  double squares() const {
    double row = -1, sum = 0;
    for (int64_t i = 0; i < count_; i += kKnownRow) {
      const bool is_whole = first_ + i + kKnownRow <= n_;
      double own = is_whole && row >= 0 ? row : 0;
      for (int64_t j = i; j < i + kKnownRow && !(is_whole && row >= 0); ++j) {
        const auto value = static_cast<double>(known_value(kind_.y, bits(j)));
        own += value * value;
      }
      if (is_whole) row = own;
      sum += own;
    }
    return sum;
  }
  uint32_t bits(int64_t element) const {
    const int64_t at = first_ + element, place = element % kKnownRow;
    if (at == nan_) return known_bits(kind_.y, kNan);
    if (at < n_) return bits_at(row_at(at - place), place, width_);
    return behind_.empty() ? 0 : bits_at(behind_[0].at_row(at / kKnownRow), place, width_);
  }

 private:
  const std::byte* row_at(int64_t at) const {
    const int64_t owner = rows_.size() == 1 ? 0 : at / shard_;
    return rows_[static_cast<size_t>(owner)].at_row(at / kKnownRow);
  }
  // NaN has many bits.
  bool equals(int64_t element, uint32_t got) const {
    if (first_ + element == nan_) return std::isnan(known_value(kind_.y, got));
    return got == bits(element);
  }

  CollectiveKind kind_;
  int64_t n_, width_, shard_, first_ = 0, count_ = 0;
  int64_t nan_ = -1;
  std::vector<KnownRow> rows_;    // one, or one a rank
  std::vector<KnownRow> behind_;  // of what lies past the n-th element, where that is no zero
};

double number_of(const CollectiveKind& kind, uint32_t bits) {
  if (op_def(kind.op).gathers) return bits;
  return static_cast<double>(known_value(kind.y, bits));
}

}  // namespace

std::string kind_text(const CollectiveKind& kind) {
  const auto name = op_def(kind.op).name;
  if (op_def(kind.op).gathers || is_of_norm(kind))
    return fmt::format("{} {}{}", name, dtype_name(kind.x), kind.in_place ? " in place" : "");
  if (is_max(kind)) return fmt::format("{} max {}", name, dtype_name(kind.x));
  return fmt::format(
      "{} {} -> {}{}{}{}", name, dtype_name(kind.x), dtype_name(kind.y),
      kind.has_into ? " (into)" : "", kind.squares ? " with squares" : "",
      kind.ranks_a_host == 0 ? "" : fmt::format(" of {} ranks a host", kind.ranks_a_host));
}

void add_kinds(const Plan& plan, CollectiveKinds& kinds) {
  for (const PlanStep& step : plan.steps) {
    const Node& node = plan.graph.node(step.node);
    if (!is_collective(node.op) || std::get<CollectiveAttrs>(node.attrs).ranks == 1) continue;
    CollectiveKind kind = kind_of(plan.graph, node);
    if (!is_of_norm(kind)) {
      kinds.insert(kind);
      continue;
    }
    for (size_t i = 1; i < node.operands.size(); ++i) {
      kind.x = plan.graph.type(node.operands[i]).dtype;
      // Squares are tried with the sums that make them.
      if (kind.x != Dtype::u32) kinds.insert(kind);
    }
  }
}

CollectiveKinds all_kinds(const Catalogue& catalogue, int n_ranks, int64_t ranks_a_host) {
  constexpr Dtype kWide[] = {Dtype::f32, Dtype::bf16, Dtype::fp16};
  std::vector<CollectiveKind> all = {
      {OpCode::all_reduce, RankReduction::max, Dtype::f32, Dtype::f32},
      {OpCode::all_reduce, RankReduction::max, Dtype::boolean, Dtype::boolean}};
  for (const Dtype x : {Dtype::f32, Dtype::bf16, Dtype::fp16, Dtype::e4m3}) {
    all.push_back({OpCode::all_gather, {}, x, x});
    if (!is_quantized(x)) all.push_back({OpCode::all_gather, {}, x, x, false, true});
    if (!is_quantized(x)) all.push_back({OpCode::sharded_norm, {}, x, Dtype::f32});
    for (const OpCode op : {OpCode::reduce_scatter, OpCode::all_reduce}) {
      for (const Dtype y : kWide) {
        for (const bool has_into : {false, true}) {
          all.push_back({op, RankReduction::sum, x, y, has_into, false, false, ranks_a_host});
          if (op_def(op).scatters)
            all.push_back({op, RankReduction::sum, x, y, has_into, false, true, ranks_a_host});
        }
      }
    }
  }
  CollectiveKinds kinds;
  for (const CollectiveKind& kind : all) {
    const Graph graph = trial_graph(kind, n_ranks, {1});
    const bool has_all = std::ranges::all_of(
        graph.nodes, [&](const Node& node) { return catalogue.choose(graph, node).has_value(); });
    if (has_all) kinds.insert(kind);
  }
  return kinds;
}

CollectiveTrial::CollectiveTrial(const CollectiveKind& kind, std::vector<int64_t> sizes,
                                 RankPlace ranks, const Catalogue& catalogue)
    : kind_(kind),
      sizes_(std::move(sizes)),
      ranks_(ranks),
      plan_(plan_of(kind, sizes_, ranks, catalogue)) {}

void CollectiveTrial::bind(Catalogue& catalogue, Arenas& arenas) {
  arenas_ = &arenas;
  bound_ = std::make_unique<BoundPlan>(plan_, catalogue, arenas);
}

void CollectiveTrial::write_x(size_t index, int pass) {
  const int64_t n = sizes_[index], width = bytes_of(kind_.x, 1);
  const bool gathers = op_def(kind_.op).gathers;
  const int64_t shard = shard_elems(n, ranks_.n_ranks);
  const ElementRange range = gathers ? shard_range(n, shard, ranks_.rank) : ElementRange{0, n};
  std::vector<std::byte> bytes(static_cast<size_t>((gathers ? shard : n) * width));
  own_row(kind_, ranks_.rank, pass).fill(bytes.data(), range.first, range.count);
  const bool is_of_one = is_of_norm(kind_) && index + 1 < sizes_.size();
  if (has_nan(kind_, pass) && !is_of_one && n > 1 &&
      ranks_.rank == rank_of_nan(ranks_.n_ranks, pass))
    put_bits(bytes.data(), place_of_nan(n, pass), width, known_bits(kind_.x, kNan));
  bound_->write_input(numbered("x", index), bytes.data(), std::ssize(bytes));
}

void CollectiveTrial::write(int pass) {
  // Before the inputs: a result may lie where `into` does.
  for (const GraphOutput& output : plan_.graph.outputs) {
    const int64_t n_bytes = plan_.graph.type(output.value).n_bytes();
    const std::vector<std::byte> poison(static_cast<size_t>(n_bytes), std::byte{0xFF});
    arenas_->device().copy_in(bound_->output(output.name), poison.data(), n_bytes);
  }
  if (bound_->has_input("clip")) bound_->write_input("clip", &kClip, sizeof(kClip));
  const float scale = scale_of(kind_, pass);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    write_x(i, pass);
    if (bound_->has_input(numbered("scale", i)))
      bound_->write_input(numbered("scale", i), &scale, sizeof(scale));
    if (!kind_.has_into) continue;
    const Expected result(kind_, ranks_, sizes_[i], pass);
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(kind_.y, result.count())));
    const int64_t first = op_def(kind_.op).scatters ? ranks_.rank * result.count() : 0;
    into_row(kind_, ranks_.rank, pass).fill(bytes.data(), first, result.count());
    bound_->write_input(numbered("into", i), bytes.data(), std::ssize(bytes));
  }
}

Mismatch CollectiveTrial::check_tensor(size_t index, int pass) const {
  const Expected expected(kind_, ranks_, sizes_[index], pass);
  const int64_t width = bytes_of(kind_.y, 1);
  std::vector<std::byte> got(static_cast<size_t>(expected.count() * width));
  bound_->read_output(numbered("y", index), got.data(), std::ssize(got));
  const int64_t at = expected.find_difference(got.data());
  if (at < 0) return {};
  return {.is_there = 1,
          .pass = pass,
          .element = at,
          .n_elems = expected.count(),
          .expected = number_of(kind_, expected.bits(at)),
          .got = number_of(kind_, bits_at(got.data(), at, width))};
}

// Its results are elements 0, 1 and 2.
Mismatch CollectiveTrial::check_norm(int pass) const {
  const bool is_finite = !has_nan(kind_, pass);
  double squares = 0;
  for (int r = 0; r < ranks_.n_ranks && is_finite; ++r) {
    for (const int64_t n : sizes_)
      squares += kind_.squares ? Expected(kind_, {r, ranks_.n_ranks}, n, pass).squares()
                               : known_squares(n, r, pass);
  }
  const double norm = is_finite ? std::sqrt(squares) : static_cast<double>(kNan);
  const double factor = is_finite ? std::min(1.0, static_cast<double>(kClip) / (norm + 1e-6)) : 1;
  const double expected[] = {norm, factor, is_finite ? 0.0 : 1.0};
  uint8_t flag = 0;
  bound_->read_output("norm2", &flag, sizeof(flag));
  const float got[] = {bound_->read_scalar("norm0"), bound_->read_scalar("norm1"),
                       static_cast<float>(flag)};
  for (int i = 0; i < 3; ++i) {
    const auto want = static_cast<float>(expected[i]);
    if (got[i] == want || (std::isnan(got[i]) && std::isnan(want))) continue;
    return {.is_there = 1,
            .pass = pass,
            .element = i,
            .n_elems = 3,
            .expected = static_cast<double>(want),
            .got = static_cast<double>(got[i])};
  }
  return {};
}

Mismatch CollectiveTrial::check(int pass) const {
  if (is_of_norm(kind_)) return check_norm(pass);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const Mismatch found = check_tensor(i, pass);
    if (found.is_there != 0) return found;
  }
  return kind_.squares ? check_norm(pass) : Mismatch{};
}

}  // namespace octet
