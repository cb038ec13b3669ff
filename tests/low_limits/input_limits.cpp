// In place of src/base/input_limits.cpp in octet_low_limits, which tools/attack.py tries: the same
// program with limits that small, harmless input exceeds.
#include "base/input_limits.h"

namespace octet {

const InputLimits& input_limits() {
  static constexpr InputLimits kLow = {
      .templates = {.max_source_bytes = 1 << 16,
                    .max_text_bytes = 1 << 13,
                    .max_memory = 1 << 18,
                    .max_steps = 50'000,
                    .max_depth = 60,
                    .max_nesting = 50,
                    .max_statements = 20,
                    .max_range = 200},
      .regex = {.max_pattern_bytes = 1 << 10,
                .max_groups = 20,
                .max_steps = 5000,
                .steps_per_byte = 1,
                .seconds = 0.5},
      .tokenizer = {.max_steps = 12, .max_marks = 2, .max_growth = 4, .growth_allowance = 64},
      .json = {.max_depth = 20,
               .max_chat_depth = 30,
               .max_values = 20'000,
               .max_record_bytes = 1 << 15},
      .yaml = {.max_depth = 12, .max_aliases = 8},
      .pictures = {.max_file_bytes = 1 << 16,
                   .max_pixels = 1 << 12,
                   .chunk_bytes = 1 << 10,
                   .max_scans = 10},
      .max_unpacked_bytes = 1 << 17};
  return kLow;
}

}  // namespace octet
