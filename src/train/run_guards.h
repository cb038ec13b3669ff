// Guards of a run's steps, so that one that learns nothing does not end like a good one.
//
//   not finite   a loss or gradient: max_nonfinite_steps in a row end the run
//   no gradient  |g| is 0, or as it is clipped too short to move a weight, though the step has
//                labels, or all ranks have the same loss to the bit though their rows differ (but
//                that of a model beside itself as the reference): a warning, and max_zero_gradients
//                in a row end the run
//   no movement  the first max_zero_gradients steps (0: three) that had a gradient left all weights
//                where they were (weight_watch.h): a warning, and unless it is 0 the run's end
//   no labels    such steps count, and stand in no average: kMaxUnlabelled in a row end the run,
//                and so does a run that has no others
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "config/run_config.h"
#include "io/manifest.h"
#include "train/step_report.h"

namespace octet {

// Reasons that may end a run between two steps, besides its last one.
enum class RunEnding : int32_t {
  none,
  no_room,       // for metrics and the next checkpoint (io/save_room.h)
  folder_gone,   // removed, moved or replaced while the run writes there
  folder_taken,  // the same, and another process holds the new one
};

// The same on all ranks.
struct RunWishes {
  int32_t signal = 0;  // its number
  RunEnding ending = RunEnding::none;
};

class RunGuards {
 public:
  static constexpr int64_t kMaxUnlabelled = 20;

  explicit RunGuards(const TrainConfig& config, const OptimConfig& optim = {});

  // The steps of a run in order; `is_last`: no other follows. Throws Error{numerics}, or
  // Error{bad_data} where there are no labels.
  void check(const StepReport& report, bool is_last, const Log& log);

  // Behind check(): whether this is the last of the first steps, and where it is, how far its
  // weights have moved since them (WeightWatch::moved). Throws Error{numerics}.
  bool ends_first_steps(const StepReport& report);
  void check_movement(double moved, const StepReport& report, const Log& log) const;

  int64_t n_unlabelled() const { return n_unlabelled_; }

  // For a checkpoint's `extra`.
  void write(KeyValues& extra) const;
  // Reads what write() left, of a run of `n_steps`; counts of guards that were not there then are
  // 0. Throws Error{bad_data} naming the key and `where` for others.
  void read(const KeyValues& extra, int64_t n_steps, const std::string& where);

 private:
  void check_finite(const StepReport& report);
  void check_gradient(const StepReport& report, const Log& log);
  void check_labels(const StepReport& report, bool is_last);

  std::string no_gradient_text(const StepReport& report) const;

  TrainConfig config_;
  double peak_lr_, clip_, least_gradient_;
  int64_t n_first_steps_ = 0;                    // of this process
  double first_lr_ = 0;                          // of these together
  int64_t n_nonfinite_ = 0, n_no_gradient_ = 0;  // in a row
  int64_t n_unlabelled_in_a_row_ = 0, n_unlabelled_ = 0;
};

// Why a run that ends with this step has not come to a good end; nothing where it has: the loss or
// the evaluation behind it is not finite, or a gradient is not and no finite evaluation stands
// behind it.
std::optional<std::string> bad_end(const StepReport& last);

}  // namespace octet
