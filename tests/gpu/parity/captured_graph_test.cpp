// Copies of a thread while another one records a program, as a save does beside a step.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "gpu/parity/gpu.h"

namespace octet::parity_captured_graph_test {
namespace {

using Words = std::array<int32_t, 256>;
constexpr int64_t kBytes = sizeof(Words);

TEST(CapturedGraph, holds_nothing_that_another_thread_copies_meanwhile) {
  OCTET_GPU_OR_SKIP(gpu);
  Device& device = *gpu->device;
  const auto state = device.allocate(kBytes), result = device.allocate(kBytes);
  Words first, second, copied{};
  first.fill(1), second.fill(2);
  device.copy_in(state->data(), first.data(), kBytes);
  const auto graph = device.capture([&] {
    device.copy_within(result->data(), state->data(), kBytes);
    std::thread([&] {
      device.copy_out_on_side_stream(copied.data(), state->data(), kBytes);
    }).join();
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(copied, first);
  device.copy_in(state->data(), second.data(), kBytes);
  graph->replay();
  device.synchronize();
  EXPECT_EQ(copied, first);
  Words replayed{};
  device.copy_out(replayed.data(), result->data(), kBytes);
  EXPECT_EQ(replayed, second);
}

}  // namespace
}  // namespace octet::parity_captured_graph_test
