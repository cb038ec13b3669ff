#include "train/step_energy.h"

#include <gtest/gtest.h>

#include "unit/base/scratch_folder.h"

namespace octet::train_step_energy_test {
namespace {

// Packages have one number, their parts two; other zones are no packages.
TEST(EnergyCounter, of_processors_is_the_sum_over_packages) {
  const test::ScratchFolder folder;
  folder.put("intel-rapl:0/energy_uj", "2500000\n");
  folder.put("intel-rapl:0:0/energy_uj", "1000000\n");
  folder.put("intel-rapl:1/energy_uj", "500000\n");
  folder.put("dtpm/energy_uj", "7\n");
  EXPECT_EQ(EnergyCounter(Energy::processors, folder.path()).joules(), 3.0);
}

TEST(EnergyCounter, has_nothing_without_a_counter_that_can_be_read) {
  const test::ScratchFolder folder;
  EXPECT_FALSE(EnergyCounter(Energy::processors, folder.path()).joules());
  EXPECT_FALSE(EnergyCounter(Energy::processors, folder / "missing").joules());
  folder.put("intel-rapl:0/energy_uj", "");
  EXPECT_FALSE(EnergyCounter(Energy::processors, folder.path()).joules());
}

TEST(StepEnergy, is_taken_once_a_second_and_behind_the_last_step) {
  const test::ScratchFolder folder;
  folder.put("intel-rapl:0/energy_uj", "1000000");
  StepEnergy energy(Energy::processors, folder.path());
  folder.put("intel-rapl:0/energy_uj", "4000000");
  EXPECT_FALSE(energy.take(false));
  EXPECT_EQ(energy.take(true), 3.0);
  folder.put("intel-rapl:0/energy_uj", "2000000");  // the counter began anew
  EXPECT_FALSE(energy.take(true));
  folder.put("intel-rapl:0/energy_uj", "2500000");
  EXPECT_EQ(energy.take(true), 0.5);
}

}  // namespace
}  // namespace octet::train_step_energy_test
