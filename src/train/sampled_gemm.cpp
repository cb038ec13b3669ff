#include "train/sampled_gemm.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "plan/tensor_gemm.h"

namespace octet {
namespace {

bool is_factor(size_t slot) {
  return slot == Gemm::a || slot == Gemm::b;
}
size_t factor_of_scale(size_t slot) {
  return slot == Gemm::scale_a ? Gemm::a : Gemm::b;
}

// The type of a part of a factor, n of its rows or columns along which nothing is added.
TensorType part_type(const TensorType& whole, size_t outer, int64_t n) {
  TensorType part = whole;
  part.shape[outer] = n;
  return part;
}

bool is_same(const TensorGemm& a, const TensorGemm& b) {
  return a.rule == b.rule && a.mode == b.mode && a.scales == b.scales && a.factors == b.factors;
}

}  // namespace

std::unique_ptr<SampledGemm> SampledGemm::make(const Graph& from, const Node& node, int64_t n,
                                               const Backend& cpu, Addend addend) {
  if (node.op != OpCode::gemm) return nullptr;
  const Target& target = cpu.catalogue->target();
  const auto whole_form = tensor_gemm({from, node, target}, capability_of(target.arithmetic));
  const TensorType y = from.type(node.out(Gemm::y));
  if (!whole_form || y.shape[0] < n || y.shape[1] < n) return nullptr;
  const auto& attrs = std::get<GemmAttrs>(node.attrs);

  Graph graph;
  graph.name = "sample";
  graph.phase = Phase::lowered;
  Builder b(graph);
  std::vector<Operand> operands;
  ValueIds ids;
  const auto outer_of = [&](size_t slot) -> size_t {
    return slot == Gemm::a ? (attrs.trans_a ? 1 : 0) : (attrs.trans_b ? 0 : 1);
  };
  for (size_t slot = 0; slot < node.operands.size(); ++slot) {
    const ValueId id = node.operands[slot];
    if (id == kNoValue) {
      ids.push_back(kNoValue);
      continue;
    }
    if (const Node* constant = from.producer(id, OpCode::fill)) {
      ids.push_back(
          b.emit_typed(constant->op, constant->attrs, {}, result_types(from, *constant))[0]);
      continue;
    }
    const TensorType& whole = from.type(id);
    TensorType part = whole;
    if (is_factor(slot)) {
      part = part_type(whole, outer_of(slot), n);
    } else if (slot == Gemm::c) {
      part.shape = is_bias_row(whole) ? Shape{n} : Shape{n, n};
    } else if (slot == Gemm::scale_a || slot == Gemm::scale_b) {
      const size_t factor = factor_of_scale(slot);
      part = scale_type(part_type(from.type(node.in(factor)), outer_of(factor), n));
    }
    operands.push_back({slot, fmt::format("x{}", slot), whole, part});
    ids.push_back(b.input(InputKind::batch, operands.back().name, part));
  }
  const bool adds_later = addend == Addend::in_y && node.in(Gemm::c) != kNoValue &&
                          whole_form->scales == TensorGemm::Scales::one &&
                          from.type(node.in(Gemm::c)).dtype == y.dtype;
  const ValueId c = adds_later ? std::exchange(ids[Gemm::c], kNoValue) : kNoValue;
  const ValueIds made = b.emit_typed(node.op, node.attrs, ids, result_types(from, node));
  const auto part_form =
      tensor_gemm({graph, graph.nodes.back(), target}, capability_of(target.arithmetic));
  b.output("y",
           adds_later ? b.emit_typed(OpCode::add, NoAttrs{}, {made[0], c}, {y.dtype})[0] : made[0]);
  if (!part_form || !is_same(*whole_form, *part_form)) return nullptr;
  return std::unique_ptr<SampledGemm>(
      new SampledGemm(std::move(graph), std::move(operands), node, y, cpu));
}

SampledGemm::SampledGemm(Graph graph, std::vector<Operand> operands, const Node& node, TensorType y,
                         const Backend& cpu)
    : graph_(std::move(graph)),
      operands_(std::move(operands)),
      node_(node),
      whole_(std::move(y)),
      bound_(graph_, *cpu.device, *cpu.catalogue) {
  const auto& attrs = std::get<GemmAttrs>(node.attrs);
  n_ = graph_.type(graph_.outputs[0].value).shape[0];
  k_ = read_shape(operands_[0].whole, attrs.trans_a)[1];
}

// The beginning of a factor's or an addend's part along the axis that is cut.
int64_t SampledGemm::first_of(size_t slot, SamplePlace place) const {
  return slot == Gemm::a ? place.row : place.col;
}

bool SampledGemm::k_is_last(const Operand& factor) const {
  const auto& attrs = std::get<GemmAttrs>(node_.attrs);
  return factor.slot == Gemm::a ? !reads_transposed(factor.whole, attrs.trans_a)
                                : reads_transposed(factor.whole, attrs.trans_b);
}

std::vector<std::byte> SampledGemm::part_of(const ReadOperand& read, const Operand& o,
                                            SamplePlace place) const {
  const int64_t width = bytes_of(o.whole.dtype, 1);
  std::vector<std::byte> part(static_cast<size_t>(o.part.n_bytes()));
  if (!is_factor(o.slot) && o.slot != Gemm::c) {  // a scale of y
    read(o.slot, 0, part);
    return part;
  }
  // Lines of `length` elements of the part, whose first one lies at `first` of the whole line.
  const bool is_row = o.slot == Gemm::c && is_bias_row(o.whole);
  const bool whole_lines = is_factor(o.slot) && k_is_last(o);
  const int64_t whole_length = is_row              ? o.whole.shape[0]
                               : o.slot == Gemm::c ? o.whole.shape[1]
                                                   : o.whole.stored_shape()[1];
  const int64_t length = whole_lines ? whole_length : n_;
  const int64_t first_line = whole_lines                    ? first_of(o.slot, place)
                             : o.slot == Gemm::c && !is_row ? place.row
                                                            : 0;
  const int64_t first = whole_lines ? 0 : first_of(o.slot, place);
  const int64_t n_lines = std::ssize(part) / (length * width);
  for (int64_t line = 0; line < n_lines; ++line) {
    read(o.slot, ((first_line + line) * whole_length + first) * width,
         std::span(part).subspan(static_cast<size_t>(line * length * width),
                                 static_cast<size_t>(length * width)));
  }
  return part;
}

std::vector<std::byte> SampledGemm::scales_of(const ReadOperand& read, const Operand& scales,
                                              const Operand& factor, SamplePlace place) const {
  const auto width = static_cast<size_t>(bytes_of(scales.whole.dtype, 1));
  std::vector<std::byte> all(static_cast<size_t>(scales.whole.n_bytes()));
  read(scales.slot, 0, all);
  if (scale_tile(factor.whole).is_all()) return all;
  std::vector<std::byte> part(static_cast<size_t>(scales.part.n_bytes()));
  const bool last = k_is_last(factor);
  const int64_t first = first_of(factor.slot, place);
  const int64_t outers = factor.whole.n_stored() / k_;
  for (int64_t outer = 0; outer < n_; ++outer) {
    for (int64_t k = 0; k < k_; ++k) {
      const int64_t in_part = last ? outer * k_ + k : k * n_ + outer;
      const int64_t in_whole = last ? (first + outer) * k_ + k : k * outers + first + outer;
      const size_t from = scale_index(factor.whole, static_cast<size_t>(in_whole));
      const size_t to = scale_index(factor.part, static_cast<size_t>(in_part));
      std::copy_n(all.begin() + static_cast<int64_t>(from * width), width,
                  part.begin() + static_cast<int64_t>(to * width));
    }
  }
  return part;
}

std::vector<std::byte> SampledGemm::compute(const ReadOperand& read, SamplePlace place) {
  for (const Operand& o : operands_) {
    std::vector<std::byte> bytes;
    if (o.slot == Gemm::scale_a || o.slot == Gemm::scale_b) {
      const size_t wanted = factor_of_scale(o.slot);
      const auto factor = std::ranges::find(operands_, wanted, &Operand::slot);
      CHECK(factor != operands_.end());
      bytes = scales_of(read, o, *factor, place);
    } else {
      bytes = part_of(read, o, place);
    }
    bound_.bound.write_input(o.name, bytes.data(), std::ssize(bytes));
  }
  bound_.bound.run([](const Plan&, const PlanStep&, bool) {});
  std::vector<std::byte> y(static_cast<size_t>(graph_.type(graph_.outputs[0].value).n_bytes()));
  bound_.bound.read_output("y", y.data(), std::ssize(y));
  return y;
}

std::vector<std::byte> SampledGemm::read_y(const ReadOperand& read, SamplePlace place) const {
  const int64_t width = bytes_of(whole_.dtype, 1);
  std::vector<std::byte> part(static_cast<size_t>(n_ * n_ * width));
  for (int64_t row = 0; row < n_; ++row) {
    read(0, ((place.row + row) * whole_.shape[1] + place.col) * width,
         std::span(part).subspan(static_cast<size_t>(row * n_ * width),
                                 static_cast<size_t>(n_ * width)));
  }
  return part;
}

}  // namespace octet
