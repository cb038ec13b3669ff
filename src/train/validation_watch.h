// The validation loss over a run: which evaluation was the best, and how many came since.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "io/manifest.h"

namespace octet {

// In a checkpoint's `extra`: of the data that evaluations read.
inline constexpr const char* kValidationContent = "validation_content";

class ValidationWatch {
 public:
  // The evaluation behind `step`; whether its loss is the lowest so far. One of a step that was
  // counted already changes nothing. A loss that is not finite is never the lowest.
  bool add(int64_t step, double loss);

  // Of other data: what was the lowest loss says nothing of the next.
  void begin_anew();

  int64_t best_step() const { return best_step_; }  // 0: none yet
  double best_loss() const { return best_loss_; }
  int64_t n_since_best() const { return n_since_best_; }

  // For a checkpoint's `extra`, exact.
  void write(KeyValues& extra) const;
  // Reads what write() left; a checkpoint without it leaves the watch as it is. Throws
  // Error{bad_data} naming the key and `where` for what write() never wrote.
  void read(const KeyValues& extra, const std::string& where);

 private:
  int64_t best_step_ = 0, last_step_ = 0, n_since_best_ = 0;
  double best_loss_ = std::numeric_limits<double>::infinity();
};

}  // namespace octet
