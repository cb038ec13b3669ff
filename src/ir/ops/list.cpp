#include "ir/ops/list.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "ir/ops/common.h"

namespace octet {
namespace {

constexpr const OpDef* kOps[] = {
#define OP(op, ...) &ops::defs::op,
#include "ir/ops/ops.def"
};

}  // namespace

const OpDef& op_def(OpCode code) {
  CHECK(static_cast<int>(code) < kOpCount);
  return *kOps[static_cast<size_t>(code)];
}

const OpDef* find_op(std::string_view name) {
  const auto def = std::ranges::find(kOps, name, &OpDef::name);
  return def == std::end(kOps) ? nullptr : *def;
}

ValueIds all_operands(const Node& node) {
  ValueIds operands = node.operands;
  operands.resize(op_def(node.op).operands.size(), kNoValue);
  return operands;
}

bool reads_quantized(const Graph& graph, const Node& node) {
  return std::ranges::any_of(
      node.operands, [&](ValueId id) { return id != kNoValue && graph.type(id).is_scaled(); });
}

bool emits_amax(const Attrs& attrs) {
  return std::visit(
      [](const auto& a) {
        if constexpr (requires { a.amax; }) {
          return a.amax;
        } else {
          return false;
        }
      },
      attrs);
}

Attrs with_amax(Attrs attrs, bool amax) {
  std::visit(
      [&](auto& a) {
        if constexpr (requires { a.amax; }) a.amax = amax;
      },
      attrs);
  return attrs;
}

ValueIds VjpFn::operator()(Builder& builder, const VjpCall& call) const {
  const bool arrives =
      std::ranges::any_of(call.dresults, [](ValueId id) { return id != kNoValue; });
  return arrives ? rule_(builder, call) : ValueIds(call.node.operands.size(), kNoValue);
}

void check_operands(const OpDef& def, const Attrs& attrs, std::span<const ValueId> operands) {
  if (attrs.index() != def.attrs().index()) throw std::bad_variant_access();
  const SlotList& slots = def.operands;
  const size_t n = operands.size();
  if (!slots.fits(n)) {
    const size_t least = slots.n_required();
    const std::string expected = slots.has_many() ? fmt::format("at least {}", least)
                                 : least == slots.size()
                                     ? fmt::to_string(least)
                                     : fmt::format("{} to {}", least, slots.size());
    throw Error(ErrorCode::invalid_argument, "[{}] expected {} operands, got {}", def.name,
                expected, n);
  }
  for (size_t i = 0; i < n; ++i) {
    if (operands[i] == kNoValue && !slots[i].optional)
      throw Error(ErrorCode::invalid_argument, "[{}] expected {}, got none", def.name,
                  slots[i].name);
  }
}

void check_scales(const OpDef& def, std::span<const TensorType> operands) {
  if (def.is_abstract) return;
  const auto fail = [&](size_t slot, const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "[{}] {} {}", def.name, def.operands[slot].name, what);
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const TensorType& type = operands[i];
    if (type.layout.transposed && !def.takes_layouts)
      fail(i, fmt::format("must not lie transposed, got {}", to_string(type)));
    const auto place = std::ranges::find(def.scales, i, &ScalePlace::operand);
    if (place == def.scales.end()) {
      const bool goes_through = def.moves && type.has(Granularity::Kind::tensor);
      if (type.is_scaled() && !goes_through)
        fail(i, fmt::format("must not be quantized, got {}", to_string(type)));
      continue;
    }
    if (type.is_scaled() && type.has(Granularity::Kind::run) != def.takes_runs)
      fail(i, fmt::format("must {} quantized in runs, got {}", def.takes_runs ? "be" : "not be",
                          to_string(type)));
    const TensorType expected = scale_type(type);
    const TensorType got = place->scale < operands.size() ? operands[place->scale] : absent_type();
    if (!type.is_scaled() && def.takes_factors) continue;
    const bool is_open = got.dtype == Dtype::real && got.shape == expected.shape;
    if (got == expected || (is_open && type.is_scaled())) continue;
    if (type.is_scaled())
      fail(i, fmt::format("of {} must have the scales {}, got {}", to_string(type),
                          to_string(expected), got == absent_type() ? "none" : to_string(got)));
    fail(i, fmt::format("of {} is not quantized and has no scales", to_string(type)));
  }
}

Cost cost_of(const Graph& graph, const Node& node) {
  const OpDef& def = op_def(node.op);
  if (def.cost != nullptr) return def.cost(graph, node);
  return {.flops = 0, .bytes = ops::moved_bytes(graph, node)};
}

}  // namespace octet
