// The progress of a run on the terminal: a bar on one line that is painted again after each step.
// Where standard error is no terminal, the trainer's plain lines serve.
#pragma once

#include <string>

#include "cli/common.h"
#include "train/trainer.h"

namespace octet {

class Progress {
 public:
  // `name` stands before the bar.
  Progress(const GlobalOptions& options, std::string name);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Log and on_step of a run, drawing here; they must not outlive this object.
  TrainHooks hooks();

 private:
  void paint(const StepReport& report);
  void clear();

  Log log_;
  std::string name_;
  bool has_bar_ = false;
  bool is_painted_ = false;
};

}  // namespace octet
