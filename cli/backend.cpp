#include "cli/backend.h"

#include "base/error.h"

namespace octet {

cpu::Backend open_backend(const GlobalOptions& options) {
  if (options.device != "cpu") {
    throw Error(ErrorCode::device,
                "--device: expected cpu, got {}: this build has no such back end", options.device);
  }
  const cpu::Isa isa =
      options.isa == "auto" ? cpu::detect_isa() : cpu::isa_from_name(options.isa).value();
  return cpu::make_backend(options.threads, isa);
}

}  // namespace octet
