// Settings to change where a plan does not fit: they were planned and fit, as a user writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/options.h"
#include "plan/catalogue.h"

namespace octet {

// At most three settings, each with what it takes: "train.batch=4 (18.2 GiB)". First the largest
// batch and single settings: a budget for recomputation, 8-bit states of the optimizer, weights
// without masters, no clipping. Where none of these fits, the fewest of them together; adapters
// where the run starts from a model; the fewest ranks. Empty where nothing fits. Each takes a plan,
// which may take seconds.
std::vector<std::string> fitting_settings(const ProgramOptions& options, const Catalogue& catalogue,
                                          int64_t limit_bytes);

}  // namespace octet
