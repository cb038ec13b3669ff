#include "backends/cpu/rope/rope_tables.h"

#include <cmath>

#include "ir/ops/rope.h"

namespace octet::cpu {

std::shared_ptr<const RopeTable> RopeTables::get(const RopeAttrs& attrs, int64_t max_positions) {
  auto table = std::make_shared<RopeTable>(RopeTable{rope_frequencies(attrs), {}, {}});
  auto& slot = tables_[{table->frequencies, max_positions}];
  if (slot) return slot;
  for (int64_t position = 0; position < max_positions; ++position) {
    for (const double frequency : table->frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table->cos.push_back(static_cast<float>(std::cos(angle)));
      table->sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  slot = std::move(table);
  return slot;
}

}  // namespace octet::cpu
