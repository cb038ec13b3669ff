// How long a run is that is told in epochs: known once its data is open.
#pragma once

#include "base/log.h"
#include "config/load.h"
#include "data/dataset.h"
#include "data/row_plan.h"

namespace octet {

// Rows of the loader's first `epochs` epochs; a part of an epoch counts up to a whole row.
int64_t rows_of_epochs(const RowLoader& loader, double epochs);
// Their steps of `step_rows` rows, or of as many as each of several sizes has.
int64_t steps_of_epochs(const RowLoader& loader, double epochs, int64_t step_rows);

// Sets train.steps from train.epochs and optim.warmup from optim.warmup_share, where they are
// given; numbers of steps that the command line names win over epochs and share, and others of the
// same file are told. Throws
// Error{invalid_argument} where it names both, or a warm-up in steps is longer than the run, and
// Error{bad_data} where no row of data fits.
void settle_length(LoadedConfig& loaded, const Dataset& data, const Log& log);

}  // namespace octet
