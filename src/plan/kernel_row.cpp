#include "plan/kernel_row.h"

#include <fmt/format.h>

#include <algorithm>

namespace octet {

std::string row_key(const KernelRow& row) {
  return fmt::format("{} {}", op_def(row.op).name, row.name);
}

std::optional<RowChoice> choose_row(const NodeView& view) {
  const auto& without = view.target.without;
  const KernelRow* best = nullptr;
  for (const KernelRow* row : view.target.rows) {
    if (row->op != view.node.op || (best != nullptr && cost(*row) >= cost(*best))) continue;
    const bool is_struck = !without.empty() && std::ranges::count(without, row_key(*row)) > 0;
    if (!is_struck && row->applies(view)) best = row;
  }
  if (best == nullptr) return std::nullopt;
  return RowChoice{.row = best,
                   .scratch_bytes = best->scratch == nullptr ? 0 : best->scratch(view),
                   .runs_on = best->runs_on == nullptr ? nullptr : best->runs_on(view)};
}

}  // namespace octet
