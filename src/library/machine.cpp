#include "octet/machine.h"

#include "base/error.h"
#include "library/public_types.h"

namespace octet {

Log log_of(const MessageSink& sink) {
  if (!sink) return {};
  return Log([sink](LogLevel level, const std::string& line) {
    if (level == LogLevel::debug) return;
    sink(level == LogLevel::warning ? MessageLevel::warning : MessageLevel::info, line);
  });
}

BackendRequest request_of(const Machine& machine) {
  const MachineOptions& options = machine.options();
  return {.device = options.device,
          .isa = options.isa,
          .threads = options.threads,
          .cuda_module = options.cuda_module,
          .device_index = options.device_index};
}

namespace {

// "" before the first; under KernelCreation, as what it tells of.
std::string& isa_of_process() {
  static std::string isa;
  return isa;
}

}  // namespace

void expect_isa_of_process(const BackendRequest& request) {
  const std::string isa = isa_of(request);
  if (isa.empty() || isa == "scalar") return;
  const std::string& chosen = isa_of_process();
  if (chosen.empty() || chosen == isa) return;
  throw Error(ErrorCode::invalid_argument,
              "[isa] expected {}, which this process computes with already, got {}: open the first "
              "machine with it",
              chosen, isa);
}

void keep_isa_of_process(const BackendRequest& request) {
  const std::string isa = isa_of(request);
  if (!isa.empty() && isa != "scalar") isa_of_process() = isa;
}

Machine::Machine(const MachineOptions& options) : options_(options) {
  if (options.threads < 0 || options.device_index < 0) {
    throw Error(ErrorCode::invalid_argument,
                "[machine] expected threads and a device_index of 0 or more, got {} and {}",
                options.threads, options.device_index);
  }
  const BackendRequest request = request_of(*this);
  const KernelCreation creation(request.device, request.rows);
  expect_isa_of_process(request);
  const Backend backend = open_backend(request);
  keep_isa_of_process(request);
  const DeviceInfo info = backend.device->info();
  name_ = info.name;
  memory_bytes_ = info.memory_bytes;
}

}  // namespace octet
