// How fast a model wrote, as the last message of `octet generate`.
#pragma once

#include <cstdint>

#include "base/log.h"
#include "train/stopwatch.h"

namespace octet {

class GenerationSpeed {
 public:
  // `work` generates and gives the number of new tokens; the time of its reading of the prompt
  // counts, that of loading the model does not.
  template <typename Work>
  void time(const Work& work) {
    const Stopwatch watch;
    n_tokens_ += work();
    seconds_ += watch.seconds();
  }
  int64_t n_tokens() const { return n_tokens_; }
  double seconds() const { return seconds_; }
  double tokens_per_s() const {
    return seconds_ > 0 ? static_cast<double>(n_tokens_) / seconds_ : 0;
  }
  // Nothing where there were no tokens.
  void tell(const Log& log) const {
    if (n_tokens_ == 0) return;
    log.info("{} tokens in {:.2f} s, {:.1f} tokens/s", n_tokens_, seconds_, tokens_per_s());
  }

 private:
  int64_t n_tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace octet
