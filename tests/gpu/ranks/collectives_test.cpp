// The kernels between GPUs have the bits of the CPU's; what the emulated runtime breaks is found.
#include "gpu/ranks/collectives.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace octet {
namespace {

using test::compare_collectives;
using test::kDiffers;
using test::kNoDevices;
using test::kSame;

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, have_the_bits_of_the_cpu) {
  const int status = compare_collectives({.n_ranks = GetParam()});
  if (status == kNoDevices) GTEST_SKIP() << "not " << GetParam() << " GPUs";
  EXPECT_EQ(status, kSame);
}

TEST_P(Collectives, have_the_bits_of_the_cpu_whoever_is_late) {
  const auto delay = [] { ::setenv("OCTET_EMULATED_JITTER", "7:2000", 1); };
  const int status = compare_collectives({.n_ranks = GetParam(), .before = delay});
  if (status == kNoDevices) GTEST_SKIP() << "not " << GetParam() << " GPUs";
  EXPECT_EQ(status, kSame);
}

// Sums are our own, and NCCL adds whole numbers alone: no bit is another.
TEST_P(Collectives, have_the_bits_of_the_cpu_over_nccl) {
  const auto delay = [] { ::setenv("OCTET_EMULATED_JITTER", "5:500", 1); };
  const int status = compare_collectives(
      {.n_ranks = GetParam(), .transport = RankTransport::nccl, .before = delay});
  if (status == kNoDevices) GTEST_SKIP() << "not " << GetParam() << " GPUs";
  EXPECT_EQ(status, kSame);
}
INSTANTIATE_TEST_SUITE_P(ranks, Collectives, testing::Values(2, 3, 8));

// What the emulated runtime can break (tests/emulator/processes.h).
struct FaultCase {
  const char* fault;
  bool has_norm = true;
};
class EmulatedFault : public testing::TestWithParam<FaultCase> {};

TEST_P(EmulatedFault, is_found) {
  if (gpu_module().find("emulated") == std::string::npos) GTEST_SKIP() << "no emulated device";
  const auto [fault, has_norm] = GetParam();
  const auto break_it = [&] {
    ::setenv("OCTET_EMULATED_FAULT", fault, 1);
    ::setenv("OCTET_EMULATED_WAIT_SECONDS", "20", 1);
  };
  EXPECT_EQ(compare_collectives({.has_norm = has_norm, .has_in_place = false, .before = break_it}),
            kDiffers);
}

INSTANTIATE_TEST_SUITE_P(
    results, EmulatedFault,
    testing::Values(FaultCase{"zero:sum_of_ranks:device=1"}, FaultCase{"flip:sum_of_ranks:count=1"},
                    FaultCase{"flip:max_of_floats:device=0"}, FaultCase{"zero:max_of_flags"},
                    FaultCase{"zero:copies:first=5"}, FaultCase{"flip:copies:device=1:count=1"}));
// The one run of a round has a barrier before it, one inside it for the norm, and one behind it.
INSTANTIATE_TEST_SUITE_P(waits, EmulatedFault,
                         testing::Values(FaultCase{"skip:waits:device=0:first=1"},
                                         FaultCase{"skip:waits:device=0:first=1", false},
                                         FaultCase{"skip:waits:device=1:first=2", false}));

}  // namespace
}  // namespace octet
