// The steps of runs as one table for spreadsheets and data frames.
#pragma once

#include <string>
#include <vector>

#include "cli/report_data.h"

namespace octet {

// CSV with a header and a line a step: run (its folder), recipe, seed, step, tokens and unit (what
// they count: tokens or pictures), seconds (of this and all steps before, without evaluation and
// saving), loss and val_loss (nats per token), grad_norm, lr, tokens_per_s, planned_bytes, skipped.
// A cell is empty where a step has no such value, or none that is finite; else it gives the number
// back.
std::string report_csv(const std::vector<RunData>& runs);

}  // namespace octet
