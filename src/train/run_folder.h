// The folder of a run: what in it is the run's, and who may begin or go on there. What is not the
// run's is never replaced or removed. Format: docs/formats/run.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/log.h"
#include "io/checkpoint.h"

namespace octet {

enum class StartMode : uint8_t {
  fresh,      // where nothing of a run lies
  resume,     // from the newest whole checkpoint, or fresh where no save came to its end
  overwrite,  // fresh, in the place of a run that this program wrote
};

// The first line of config.yaml: it tells a run's file from a user's. `maker` is the command.
std::string config_header(std::string_view maker);

// The command that began the run in `folder`, "" where config.yaml is missing or somebody else's.
// What was written before there was a header is of "train".
std::string maker_of_run(Files& files, const std::string& folder);

// Throws Error{invalid_argument} where a run must not begin or go on in `folder`, Error{io} where
// that cannot be told. Touches nothing.
void check_run_folder(Files& files, const std::string& folder, StartMode mode);

// Makes the folder and holds it for this process, then checks it again and removes what killed
// processes left; with StartMode::overwrite also the checkpoints and other files of the old run
// that the new one does not replace. Throws Error{io} where another process holds it.
std::unique_ptr<FileLock> take_run_folder(Files& files, const std::string& folder, StartMode mode,
                                          const Log& log);

// Removes, for a run that has nothing left to do, what a save that was killed left, as
// Checkpoints::tidy, where nobody holds the folder and it may be changed, and else writes nothing.
void tidy_run_folder(Files& files, const std::string& folder, const KeptCheckpoints& keep,
                     const std::string& loaded);

}  // namespace octet
