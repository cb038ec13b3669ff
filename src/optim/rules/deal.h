// Matrices of one shape whose updates want them whole, dealt out among the ranks that hold shards
// of them: of n matrices each of D ranks works on count = ceil(n / D), the last ranks on some that
// others work on too. One rank has all.
#pragma once

#include <algorithm>

#include "optim/rules/rule.h"

namespace octet {

class Deal {
 public:
  explicit Deal(std::span<UpdateBuilder> all);

  // Of this rank's shards of all matrices the whole ones [rows, cols] that it works on.
  ValueIds out(const ValueIds& shards);
  // Of the results [count, rows, cols], all the matrices: this rank's shards of them.
  ValueIds back(ValueId results);

 private:
  int64_t first(int64_t rank) const { return std::min(rank * count_, n_ - count_); }

  Builder& b_;
  const UpdateAttrs& attrs_;
  int64_t n_, count_, size_;  // matrices, those of a rank, elements of one
};

}  // namespace octet
