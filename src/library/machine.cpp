#include "octet/machine.h"

#include <mutex>

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

std::mutex g_isa_mutex;
std::string g_isa;  // of this process's machines; "" before the first

}  // namespace

void expect_isa_of_process(const BackendRequest& request) {
  const std::string isa = isa_of(request);
  if (isa.empty() || isa == "scalar") return;
  const std::lock_guard lock(g_isa_mutex);
  if (g_isa.empty() || g_isa == isa) return;
  throw Error(ErrorCode::invalid_argument,
              "[isa] expected {}, which this process computes with already, got {}: open the first "
              "machine with it",
              g_isa, isa);
}

void keep_isa_of_process(const BackendRequest& request) {
  const std::string isa = isa_of(request);
  const std::lock_guard lock(g_isa_mutex);
  if (!isa.empty() && isa != "scalar") g_isa = isa;
}

Machine::Machine(const MachineOptions& options) : options_(options) {
  if (options.threads < 0 || options.device_index < 0) {
    throw Error(ErrorCode::invalid_argument,
                "[machine] expected threads and a device_index of 0 or more, got {} and {}",
                options.threads, options.device_index);
  }
  const BackendRequest request = request_of(*this);
  expect_isa_of_process(request);
  const Backend backend = open_backend(request);
  keep_isa_of_process(request);
  const DeviceInfo info = backend.device->info();
  name_ = info.name;
  memory_bytes_ = info.memory_bytes;
}

}  // namespace octet
