// Conditions that hold for every plan, worked out from its printed program and the table of its
// buffers alone: neither the planner's live intervals nor its choices are believed.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace octet::plan_checker {

// One line of program_text: what a step reads and writes, by value, and its scratch.
struct Line {
  std::vector<int> results = {}, operands = {};
  int64_t scratch_bytes = 0, scratch_offset = 0;
};
std::vector<Line> parse_program(const std::string& text);

// Every fault found, one line each; empty for a sound plan. Checks that
//   - each operand is an input or was written before, and its bytes were not written since by
//     another value;
//   - a result shares bytes with an operand of its step only where the op allows it;
//   - no two values that live at one step overlap, nor a scratch any of them;
//   - every value lies within its arena, aligned;
//   - an output's bytes are intact at the end, and an update lies where its input does.
std::vector<std::string> faults(const Plan& plan);

// Steps after which the bytes of each value are not read any more, recomputed from the program:
// n_steps for outputs and inputs.
std::vector<int> last_reads(const Plan& plan, const std::vector<Line>& lines);

}  // namespace octet::plan_checker
