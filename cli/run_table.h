// The table that ends a run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/common.h"
#include "train/trainer.h"

namespace octet {

// Columns: recipe, steps, train_loss, val_loss (nats per token), tokens_per_s (pictures_per_s of a
// model that reads such), planned_bytes (what the plans allocated), peak_bytes (the process's
// resident peak), state_bytes (masters and moments). Bytes are plain numbers with --json, else with
// units.
Table run_table(std::string_view unit = kTokens);
// The name of that column.
std::string speed_column(std::string_view unit);
std::vector<std::string> run_row(const GlobalOptions& options, const std::string& recipe,
                                 const TrainResult& result);

}  // namespace octet
