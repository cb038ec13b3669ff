// Small runs through include/octet beside the same ones by the program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"
#include "octet/octet.h"

namespace octet::test {

// The tiny configuration in the folder, as a file; runs differ in `out`.
inline std::string tiny_file(const ScratchFolder& folder) {
  return folder.put("tiny.yaml", tiny_yaml(folder));
}

inline Outcome run_training(const ScratchFolder& folder, const std::vector<std::string>& sets) {
  std::string line = "train " + tiny_file(folder) + " --quiet --threads 2";
  for (const std::string& set : sets) line += " --set '" + set + "'";
  return run_program(folder, line);
}

inline TrainingConfig tiny_training(const ScratchFolder& folder,
                                    const std::vector<std::string>& sets) {
  return {.file = tiny_file(folder), .sets = sets};
}

inline Machine two_threads() {
  return Machine({.threads = 2});
}

inline std::vector<TrainingStep> steps_to_the_end(Training& training) {
  std::vector<TrainingStep> steps;
  while (auto step = training.step()) steps.push_back(std::move(*step));
  return steps;
}

inline std::string weights_of(const std::string& checkpoint) {
  return posix_files().read_text(checkpoint + "/model.safetensors");
}

// The code and message of what `call` throws.
template <typename Call>
std::pair<ErrorCode, std::string> error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::internal, "no error"};
}

}  // namespace octet::test
