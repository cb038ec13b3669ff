// The inputs of a run's model and losses: what its data must bring, but for what follows from
// others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "data/inputs.h"
#include "nn/model.h"

namespace octet {

struct RunInputs {
  std::vector<InputSpec> all;
  int64_t rows_per_sample = 1;
  bool hides_tokens = false;      // for a loss of theirs
  bool compares_answers = false;  // rows are two answers to a prompt

  RunInputs(const RunConfig& config, const ModelSpec& spec);

  std::vector<InputSpec> brought() const;              // but those of completed_inputs()
  std::vector<std::string> names() const;              // of these
  const InputSpec* find(std::string_view name) const;  // of all
};

}  // namespace octet
