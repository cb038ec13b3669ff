// Plans without one of the rows that they would use.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/error.h"
#include "compile/program.h"
#include "plan/backend.h"
#include "plan/kernel_row.h"

namespace octet::rows {

inline std::vector<FunctionKey> functions_of(const Program& program, const ProgramOptions& options,
                                             bool writes_text = true) {
  std::vector<FunctionKey> keys = program.train_keys();
  keys.push_back({function::evaluate, options.train});
  if (!writes_text) return keys;
  for (const std::string_view name : {function::prefill, function::decode})
    keys.push_back({name, {.batch = 2, .seq = 16, .cache = 64}});
  return keys;
}

using Rows = std::set<const KernelRow*>;
inline Rows rows_of(const ProgramOptions& options, const Catalogue& catalogue) {
  Program program(options, catalogue);
  Rows rows;
  for (const FunctionKey& key : functions_of(program, options)) {
    const Plan& plan = program.plan(key);
    EXPECT_EQ(plan.target, catalogue.target().text());
    for (const PlanStep& step : plan.steps) rows.insert(step.kernel.row);
  }
  return rows;
}

// Counts of a run's rows: that others stand in for, and that are told to be missing.
struct Counts {
  int planned = 0, refused = 0;
};

// Plans the run without each of its rows, one at a time: by other rows alone, or, where a primitive
// has no other, with an error that names it.
inline Counts take_each_away(const ProgramOptions& options,
                             const std::function<Backend()>& make_backend) {
  Counts counts;
  for (const KernelRow* row : rows_of(options, *make_backend().catalogue)) {
    const std::string key = row_key(*row);
    const Backend backend = make_backend();
    backend.catalogue->strike(key);
    EXPECT_TRUE(backend.catalogue->target().text().ends_with("without " + key));
    try {
      EXPECT_FALSE(rows_of(options, *backend.catalogue).contains(row)) << key;
      ++counts.planned;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << key << ": " << what;
      EXPECT_NE(what.find("no kernel for node"), std::string::npos) << key << ": " << what;
      ++counts.refused;
    }
  }
  return counts;
}

}  // namespace octet::rows
