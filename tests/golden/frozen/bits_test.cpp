// The bits of the losses of 30 steps, and the planned bytes, one file for each set of instructions
// and one for a GPU. On another machine than the file's the last bits of library functions differ,
// and oneDNN's sums follow the processor and its caches: losses are then compared within
// kOtherMachine. What this machine lacks is skipped. Made anew by
//   for i in scalar avx2 avx512 amx; do OCTET_UPDATE_GOLDEN=1 octet_golden_all
//     --gtest_filter="*LossBits*/$i"; done        (a process each: a library takes its limit once)
//   OCTET_UPDATE_GOLDEN=1 OCTET_CUDA_MODULE=liboctet_cuda.so octet_golden_all
//     --gtest_filter=GpuLossBits*
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <charconv>
#include <dnnl.hpp>
#include <fstream>
#include <iostream>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "golden/frozen/runs.h"
#include "golden/golden_text.h"
#include "gpu/parity/gpu.h"
#include "property/recipes/tiny_training.h"

namespace octet::frozen_bits_test {
namespace {

constexpr int kSteps = 30;
constexpr float kOtherMachine = 0.1f;  // 30 steps at a high rate let the last bits grow
constexpr std::string_view kMachine = "machine: ";

std::string line_of(const frozen::Run& run, const Backend& backend) {
  const std::vector<float> losses =
      tiny::losses_on({*backend.device, *backend.catalogue}, run.program, kSteps, run.spec);
  std::string hex;
  for (const float loss : losses) hex += fmt::format(" {:08x}", std::bit_cast<uint32_t>(loss));
  Program program(run.program, *backend.catalogue);
  return fmt::format("{}: {} bytes,{}\n", run.name, program.planned_bytes(), hex);
}

std::string text_of(const std::vector<frozen::Run>& runs, const Backend& backend,
                    const std::string& machine) {
  std::string text = std::string(kMachine) + machine + "\n";
  for (const frozen::Run& run : runs) text += line_of(run, backend);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The losses at the end of a line.
std::vector<float> losses_in(const std::string& line) {
  std::istringstream stream(line.substr(line.rfind(',') + 1));
  std::vector<float> losses;
  for (std::string word; stream >> word;) {
    uint32_t bits = 0;
    std::from_chars(word.data(), word.data() + word.size(), bits, 16);
    losses.push_back(std::bit_cast<float>(bits));
  }
  return losses;
}

void expect_near_losses(const std::string& recorded, const std::string& now) {
  const auto was = lines_of(recorded), is = lines_of(now);
  ASSERT_EQ(was.size(), is.size());
  for (size_t i = 1; i < is.size(); ++i) {
    const auto a = losses_in(was[i]), b = losses_in(is[i]);
    ASSERT_EQ(a.size(), b.size()) << is[i];
    for (size_t s = 0; s < b.size(); ++s) EXPECT_NEAR(a[s], b[s], kOtherMachine) << is[i];
  }
}

// A run a time, so that a failure shows which.
void expect_recorded(const std::string& name, const std::string& now) {
  const std::string recorded = test::golden_text(name, now);
  if (recorded.empty()) GTEST_SKIP() << "not recorded yet: " << name;
  const auto was = lines_of(recorded), is = lines_of(now);
  if (was.front() != is.front()) {
    std::cout << "[   NOTE   ] " << name << " was made elsewhere (" << was.front()
              << "), here it is " << is.front() << ": losses are compared within " << kOtherMachine
              << "\n";
    return expect_near_losses(recorded, now);
  }
  ASSERT_EQ(was.size(), is.size());
  for (size_t i = 0; i < is.size(); ++i) EXPECT_EQ(was[i], is[i]);
}

// The processor and its caches: "AuthenticAMD 25 17 1, caches 32768 1048576 33554432".
std::string processor() {
  std::string text;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {  // of the first core
    const std::string key = line.substr(0, line.find_first_of("\t:"));
    for (const char* wanted : {"vendor_id", "cpu family", "model", "stepping"}) {
      if (key == wanted) text += line.substr(line.find(':') + 2) + " ";
    }
  }
  return fmt::format("{}caches {} {} {}", text, ::sysconf(_SC_LEVEL1_DCACHE_SIZE),
                     ::sysconf(_SC_LEVEL2_CACHE_SIZE), ::sysconf(_SC_LEVEL3_CACHE_SIZE));
}

class LossBits : public testing::TestWithParam<const char*> {};

TEST_P(LossBits, are_the_recorded_bits) {
  const cpu::Isa isa = *cpu::isa_from_name(GetParam());
  if (isa > cpu::detect_isa()) GTEST_SKIP() << "this machine has no " << GetParam();
  const Backend backend = cpu::make_backend(2, isa);
  const dnnl_version_t* library = dnnl_version();
  const std::string machine =
      fmt::format("{}, {}, {} divider, glibc {}, oneDNN {}.{}.{}, products of bf16 in {}, {}",
                  GetParam(), processor(), cpu::has_slow_divider() ? "slow" : "fast",
                  gnu_get_libc_version(), library->major, library->minor, library->patch,
                  dtype_name(cpu::bf16_compute_dtype()), __VERSION__);
  expect_recorded(fmt::format("frozen/{}.txt", GetParam()),
                  text_of(frozen::runs(frozen::Size::tiny), backend, machine));
  expect_recorded(fmt::format("frozen/unquantized_{}.txt", GetParam()),
                  text_of(frozen::runs_of_unquantized_reads(frozen::Size::tiny), backend, machine));
}

INSTANTIATE_TEST_SUITE_P(bits, LossBits, testing::Values("scalar", "avx2", "avx512", "amx"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GpuLossBits, are_the_recorded_bits) {
  OCTET_GPU_OR_SKIP(gpu);
  const Backend backend =
      cuda::make_backend({.module = gpu_module(), .deterministic = true, .n_threads = 4});
  std::string machine = gpu->device->info().name;
  for (const DeviceLibrary& library : gpu->device->libraries())
    machine += fmt::format(", {} {}", library.name, library.version);
  expect_recorded("frozen/cuda.txt", text_of(frozen::runs(frozen::Size::small), backend, machine));
  expect_recorded(
      "frozen/unquantized_cuda.txt",
      text_of(frozen::runs_of_unquantized_reads(frozen::Size::small), backend, machine));
}

}  // namespace
}  // namespace octet::frozen_bits_test
