#include "plan/catalogue.h"

#include "base/error.h"

namespace octet {

void Catalogue::set_arithmetic(Arithmetic arithmetic) {
  const int wanted = capability_of(arithmetic);
  if (wanted != 0 && wanted != target_.capability) {
    throw Error(ErrorCode::invalid_argument,
                "[arithmetic] expected own on {} ({}.{}), got {}: its tensor cores add otherwise "
                "than those of {}.{}",
                target_.architecture, target_.capability / 10, target_.capability % 10,
                enum_name(arithmetic), wanted / 10, wanted % 10);
  }
  target_.arithmetic = arithmetic;
}

}  // namespace octet
