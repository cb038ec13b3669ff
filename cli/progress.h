// Progress on the terminal: a line that is painted again as it changes; nothing where standard
// error is no terminal, or with --quiet.
#pragma once

#include <functional>
#include <string>

#include "cli/common.h"
#include "data/token_cache.h"
#include "infer/inference.h"
#include "train/trainer.h"

namespace octet {

bool shows_progress(const GlobalOptions& options);

// Progress of text on its way into tokens, after each batch.
std::function<void(const TokenizeProgress&)> tokenize_painter(const GlobalOptions& options);

// "BEFORE3 of 10 WHAT", after each `every` of them and the last.
OnProgress count_painter(const GlobalOptions& options, std::string before, std::string what,
                         int64_t every = 1);

// Progress of a run: a bar, after each step. Where there is none, the trainer's plain lines serve.
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
