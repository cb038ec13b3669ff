// A run of the program that is killed again and again, and resumed each time.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "unit/base/scratch_folder.h"

namespace octet::test {

struct Settings {
  std::string recipe, state, master, rule = "adamw";
  std::string name() const;  // fit for a test's name
};

// Every recipe with every format of the moments and every master.
std::vector<Settings> all_settings();
// Each format of the moments once, recipes and masters in turn.
std::vector<Settings> some_settings();
// Every rule but AdamW with a momentum in f32, E4M3 and E4M3 rounded stochastically.
std::vector<Settings> settings_of_rules();

// Event that befalls the process at each of the moments.
enum class Disturbance {
  kill,       // SIGKILL
  signal,     // SIGTERM or SIGINT, in turn; it must end by itself with the signal's exit code
  rival,      // a second process on the same folder, and SIGKILL for one of the two
  full_disk,  // it runs on a disk that is too small, which then grows; needs the right to mount
};

struct KillPlan {
  int steps = 6;
  uint32_t kills = 1;
  uint32_t seed = 1;
  Disturbance disturbance = Disturbance::kill;
  int ranks = 1;  // as threads of the process
};

// True if this process may mount a file system.
bool can_mount();

// Trains the settings on a shard whose length the sequence does not divide, with accumulation over
// 3 micro-batches and a checkpoint after every step: once undisturbed, and once disturbed at
// random moments (at any time, soon after a step's line, and inside a save, in turn), each followed
// by --resume. The two must leave the same loss_bits and the same bytes in the last checkpoint;
// what differs is reported through GoogleTest. Gives how many disturbances hit a living process.
int expect_same_after_kills(const Settings& settings, const KillPlan& plan);

}  // namespace octet::test
