#include "train/process_memory.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace octet {

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    int64_t kibibytes = 0;
    if (name == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  rusage usage{};  // knows no reset
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

void reset_peak_resident_bytes() {
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets the peak
}

}  // namespace octet
