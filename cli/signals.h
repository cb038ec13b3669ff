// SIGINT and SIGTERM as a wish to stop.
#pragma once

#include <atomic>

namespace octet {

// Installs the handlers: the first signal's number appears here, a second one ends the process as
// usual. The flag lives as long as the process.
const std::atomic<int>& catch_stop_signals();

}  // namespace octet
