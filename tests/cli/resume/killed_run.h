// A run of the program that is killed again and again, and resumed each time.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "unit/base/scratch_folder.h"

namespace octet::test {

struct Settings {
  std::string recipe, state, master;
  std::string name() const;  // fit for a test's name
};

// Every recipe with every format of the moments and every master.
std::vector<Settings> all_settings();
// Each format of the moments once, recipes and masters in turn.
std::vector<Settings> some_settings();

struct KillPlan {
  int steps = 6;
  uint32_t kills = 1;
  uint32_t seed = 1;
};

// Trains the settings on a shard whose length the sequence does not divide, with accumulation over
// 3 micro-batches and a checkpoint after every step: once undisturbed, and once with kill -9 at
// random moments (at any time, soon after a step's line, and inside a save, in turn), each followed
// by --resume. The two must leave the same loss_bits and the same bytes in the last checkpoint;
// what differs is reported through GoogleTest. Gives how many kills hit a living process.
int expect_same_after_kills(const Settings& settings, const KillPlan& plan);

}  // namespace octet::test
