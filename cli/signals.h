// Effects of signals on the program.
//
//   SIGINT, SIGTERM, SIGHUP   end it at once with status 128 + number and one line, whatever it is
//                             doing: files are replaced as one act, so nothing is lost; those that
//                             are not whole yet are removed. While a run takes its steps, the first
//                             one is a wish instead: a line says at once that the run saves its
//                             state and ends after the step in progress. SIGHUP stays ignored where
//                             the program was started so (nohup).
//   SIGPIPE, SIGXFSZ          are ignored: the write fails, and that is an Error like others
#pragma once

#include <atomic>
#include <cstdint>

namespace octet {

// The first call of main after the descriptors are open.
void install_signals();

// The number of the signal that asked to stop, or 0. Lives as long as the process.
const std::atomic<int>& stop_wish();

// Between begin() and the end of its life a signal is a wish. Only one at a time.
class StopDeferral {
 public:
  StopDeferral() = default;
  ~StopDeferral();
  StopDeferral(const StopDeferral&) = delete;
  StopDeferral& operator=(const StopDeferral&) = delete;

  enum class Tells : uint8_t { no, yes };  // whether a line answers the signal
  void begin(Tells tells = Tells::no);     // may be called again
};

}  // namespace octet
