// A row that a plan chose and that the kernel's library or device refuses after all.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"
#include "plan/catalogue.h"

namespace octet {

// Thrown by Catalogue::prepare.
class RowUnavailable : public Error {
 public:
  // row: as Target::without has it.
  RowUnavailable(std::string row, const std::string& why)
      : Error(ErrorCode::device, "[plan] {} is not available: {}", row, why),
        row_(std::move(row)) {}
  const std::string& row() const { return row_; }

 private:
  std::string row_;
};

// Calls make(), which plans and binds, until no row is refused; each that is, is struck. Plans made
// before it must not be bound again: they have another target.
template <typename Make>
void bind_available_rows(Catalogue& catalogue, const Make& make) {
  for (;;) {
    try {
      return make();
    } catch (const RowUnavailable& refused) {
      catalogue.strike(refused.row());
    }
  }
}

}  // namespace octet
