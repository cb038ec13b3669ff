#include "base/error.h"

namespace octet {

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return 2;
    case ErrorCode::bad_data:
      return 3;
    case ErrorCode::io:
      return 3;
    case ErrorCode::numerics:
      return 4;
    case ErrorCode::device:
      return 5;
    case ErrorCode::internal:
      return 1;
    case ErrorCode::rank_lost:
      return 75;  // EX_TEMPFAIL of sysexits.h: try again
  }
  return 1;
}

void check_failed(const char* condition, const char* file, int line) {
  throw Error(ErrorCode::internal, "internal check failed: {} ({}:{})", condition, file, line);
}

}  // namespace octet
