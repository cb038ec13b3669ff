#include "plan/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace octet {

std::string Target::text() const {
  std::string text = fmt::format("{} {}", backend, architecture);
  if (capability > 0) text += fmt::format(" ({}.{})", capability / 10, capability % 10);
  if (!blas.empty()) text += ", cuBLASLt " + blas;
  if (!dnn.empty()) text += ", cuDNN " + dnn;
  if (arithmetic == Arithmetic::hopper && capability == 0) text += ", sums of Hopper (9.0)";
  if (n_threads > 0) text += fmt::format(", {} threads", n_threads);
  if (ranks > 1) text += fmt::format(", {} ranks", ranks);
  if (deterministic) text += ", deterministic";
  if (assumed) text += ", assumed without a device";
  for (const std::string& row : without) text += ", without " + row;
  return text;
}

}  // namespace octet
