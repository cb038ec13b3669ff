// A row is one kernel, or a few in a fixed order, that a back end has for an op: when it applies
// and what it costs. An op has several; the plan takes one, and what runs is that.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/node_view.h"
#include "plan/target.h"

namespace octet {

struct RowFacts {
  bool generic = false;         // element by element, whatever the types: far from the peak
  bool reference = false;       // a scalar kernel that decodes, computes in double and encodes
  bool has_two_phases = false;  // a collective of two phases (PlanStep::is_second_phase)
  bool constant_scale = false;  // reads a scale of its result from the graph, not from memory
};

struct KernelRow;
// A step of a plan, as a row is asked about steps that would be one launch.
struct RowStep {
  NodeView view;
  const KernelRow* row;
  // Nobody but these steps reads what it makes, and none of it is a state's next value: one launch
  // need not store it.
  bool is_inner;
};

struct KernelRow {
  OpCode op;
  std::string_view name;  // unique within the op and back end
  bool (*applies)(const NodeView& view);
  int64_t (*scratch)(const NodeView& view) = nullptr;  // bytes, an upper bound; nullptr: none
  RowFacts facts = {};
  // True if launches of it that do not depend on each other may be one; nullptr: never.
  bool (*may_join)(const NodeView& view) = nullptr;
  double factor = 1;  // of cost(), beside other rows of the op that are no generic ones
  // The row that does the work of this one for a node, with other types; nullptr: the row itself.
  const KernelRow* (*runs_on)(const NodeView& view) = nullptr;
  // The kernel that makes neighbouring steps, the last of which has this row, in one launch, where
  // each may read what those before it make (plan/joined_launches.h); empty: there is none.
  // nullptr: never.
  std::string_view (*chain_kernel)(std::span<const RowStep> steps) = nullptr;
};

// For `applies` and `may_join`: whatever the node.
inline bool always(const NodeView& /*view*/) {
  return true;
}

// The time that a row takes for a node, over that of moving its operands and results once: 256 for
// the reference, 16 for a generic one.
constexpr double cost(const KernelRow& row) {
  return row.facts.reference ? 256 : row.facts.generic ? 16 : row.factor;
}

std::string row_key(const KernelRow& row);  // "rms_norm codes": as Target::without has it

struct RowChoice {
  const KernelRow* row = nullptr;
  int64_t scratch_bytes = 0;
  const KernelRow* runs_on = nullptr;  // KernelRow::runs_on; nullptr: the row itself
};

// Row of least cost among the target's rows that apply and are not struck, of those the first.
std::optional<RowChoice> choose_row(const NodeView& view);

}  // namespace octet
