// Texts that models wrote while they were trained (train/run_samples.h), for `octet report`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "cli/common.h"
#include "cli/report_data.h"

namespace octet {

// Samples of each run's last steps, as many steps of all as fit; of one step at least.
struct ShownSamples {
  std::vector<std::vector<TextSample>> runs;  // in the order of runs
  size_t n_shown = 0, n_samples = 0;          // and how many the runs have
};
// `n_bytes`: of a page that has them as data and as a table.
ShownSamples last_samples(const std::vector<RunData>& runs, size_t n_bytes);

// {shown, of, runs: [{run: its index, prompts, rows: [{step, texts}]}]}, a text a prompt: null or
// left out at the end where there is none, and ending with "..." where the bound on tokens ended
// it.
OrderedJson samples_json(const ShownSamples& samples);
// A row a sample; and what it is called.
Table samples_table(const std::vector<RunData>& runs, const ShownSamples& samples);
std::string samples_title(const ShownSamples& samples);

// All samples as CSV: run (its folder), recipe, seed, step, prompt, text and stop.
std::string samples_csv(const std::vector<RunData>& runs);

}  // namespace octet
