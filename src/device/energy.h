// The energy that a machine's own counters say it has used.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace octet {

enum class Energy : uint8_t { processors, gpu };

inline constexpr const char* kPowercap = "/sys/class/powercap";

// Energy of a GPU: NVML's total of the host's only one, in mJ; where a host has several, nobody
// says which of them computes, and nothing is counted. Of processors: powercap's sum over their
// packages, in uJ, where this process may read it.
class EnergyCounter {
 public:
  explicit EnergyCounter(Energy of, std::string powercap = kPowercap);
  ~EnergyCounter();
  EnergyCounter(const EnergyCounter&) = delete;
  EnergyCounter& operator=(const EnergyCounter&) = delete;

  // Since some beginning: differences count. Nothing where there is no counter.
  std::optional<double> joules() const;
  // Since the last call, or since it was made. Nothing where there is no counter, or it began anew.
  std::optional<double> take();

 private:
  struct Nvml;
  std::unique_ptr<Nvml> nvml_;
  Energy of_;
  std::string powercap_;
  std::optional<double> last_;
};

}  // namespace octet
