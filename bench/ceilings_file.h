// Ceilings that were measured before, kept by device, so that a call need not measure them again.
#pragma once

#include <optional>
#include <string>

#include "base/files.h"
#include "runtime/profile.h"

namespace octet {

// Ceilings of the device by this name, in a file {"NVIDIA H200": {"bytes_per_s": 4.1e12, ...}}.
// Nothing where there is no file or no such device. Throws Error{bad_data} for another file.
std::optional<Ceilings> read_ceilings(const Files& files, const std::string& path,
                                      const std::string& device);

// Sets the device's, and keeps other devices'. Makes the file and its folders where need be, as one
// act.
void write_ceilings(Files& files, const std::string& path, const std::string& device,
                    const Ceilings& ceilings);

}  // namespace octet
