// Memory of the host, as far as this process may use it.
#pragma once

#include <cstdint>
#include <string>

namespace octet {

struct HostMemory {
  int64_t total_bytes = 0;      // what the process could ever have: the machine's, or a limit's
  int64_t available_bytes = 0;  // what it can take now without pushing anything out
  std::string limited_by;  // that decides available_bytes: "machine", "control group", "ulimit"
};

// The least of: the memory that the kernel counts as available; what each control group that holds
// the process (versions 1 and 2, up to the root) leaves, file pages that can be dropped counted as
// free; and the address space that RLIMIT_AS leaves. What cannot be read limits nothing. `root`
// stands before /proc and /sys; with another root than "" the process's own RLIMIT_AS is not asked.
HostMemory read_host_memory(const std::string& root = "");

// Memory of the process, as the operating system counts it.
//
// The most memory that was resident at one time since the start or the last reset, bytes.
int64_t peak_resident_bytes();

// Begins a new peak. Where the system does not offer it, the peak since the start goes on.
void reset_peak_resident_bytes();

}  // namespace octet
