// Primitives that reduce, contract, count and look up, at the sizes where their paths differ: along
// and across the axis that vanishes, in one piece and in many.
#include "table.h"

namespace octet::fusion::primitives {
namespace {

constexpr double kSums = 1e-6;  // doubles inside

void add_reductions(Table& table) {
  const std::pair<Shape, Shape> cases[] = {
      {{300, 193}, {0}},     {{300, 193}, {1}}, {{300, 193}, {0, 1}},   {{200000}, {0}},
      {{3, 70001}, {1}},     {{70001, 3}, {0}}, {{4, 5, 6, 7}, {1, 3}}, {{4, 5, 6, 7}, {0, 2}},
      {{2, 3, 100}, {1, 2}}, {{9, 1, 33}, {1}}, {{0, 7}, {0}},          {{7, 0}, {1}},
      {{5000, 40}, {1}}};
  for (const auto& [shape, axes] : cases) {
    const OperandCase x = tensor(shape);
    table.put(OpCode::reduce_sum, AxesAttrs{.axes = axes}, {x}, kSums);
    if (n_elems(shape) == 0) continue;
    table.put_nonfinite(OpCode::reduce_max, AxesAttrs{.axes = axes}, {x});
    if (axes.size() == 1) table.put_nonfinite(OpCode::argmax, AxisAttrs{.axis = axes[0]}, {x});
  }
}

void add_dots(Table& table) {
  const auto put = [&](Shape a, Shape b, const DotAttrs& attrs) {
    table.put(OpCode::dot, attrs, {tensor(std::move(a)), tensor(std::move(b))}, kSums);
  };
  put({130, 70}, {70, 33}, {{}, {}, {1}, {0}});
  put({70, 130}, {33, 70}, {{}, {}, {0}, {1}});
  put({5, 40, 64}, {5, 64, 17}, {{0}, {0}, {2}, {1}});
  put({40, 64, 5}, {64, 5, 17}, {{2}, {1}, {1}, {0}});
  put({300}, {300}, {{}, {}, {0}, {0}});
  put({17}, {31}, {});
  put({6, 7, 8}, {8, 9, 6}, {{}, {}, {0, 2}, {2, 0}});
}

void add_lookups(Table& table) {
  for (const auto& [rows, wide] : {std::pair(40, Shape{9, 8}), std::pair(3, Shape{37}),
                                   std::pair(70000, Shape{8}), std::pair(6, Shape{})}) {
    Shape whole{rows}, found{20, 50};
    whole.insert(whole.end(), wide.begin(), wide.end());
    found.insert(found.end(), wide.begin(), wide.end());
    const OperandCase ids = integers({20, 50}, Fill::any_ids, rows);
    table.put(OpCode::gather, NoAttrs{}, {tensor(whole), ids});
    table.put(OpCode::scatter_add, ScatterAddAttrs{.rows = rows}, {tensor(found), ids}, 1e-5);
  }
  table.put(OpCode::iota, IotaAttrs{.shape = {300, 7}, .axis = 0}, {});
  table.put(OpCode::iota, IotaAttrs{.shape = {3, 300, 7}, .axis = 1}, {});
}

TEST(primitives, reductions_are_those_of_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_reductions(table);
  run_table(table, *gpu);
}

TEST(primitives, contractions_are_close_to_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_dots(table);
  run_table(table, *gpu);
}

TEST(primitives, lookups_by_any_index_are_those_of_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_lookups(table);
  run_table(table, *gpu);
}

}  // namespace
}  // namespace octet::fusion::primitives
