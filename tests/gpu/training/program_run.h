// Runs of the program on the GPU.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/train/tiny_run.h"
#include "gpu/parity/gpu.h"

namespace octet::test {

inline std::string run_yaml(const ScratchFolder& folder) {
  const std::string data = folder.put("text.txt", easy_text(60000));
  return folder.put(
      "run.yaml",
      "model: {kind: llama, hidden: 256, layers: 2, heads: 4, ffn: 704, vocab: 256, seq: 256}\n"
      "recipe: coat\n"
      "optim: {lr: 2.0e-3, warmup: 2}\n"
      "data: {train: [" +
          data +
          "], val_fraction: 0.1}\n"
          "train: {steps: 6, batch: 4, eval_every: 3, eval_bytes: 2048, save_every: 3, keep: 9}\n");
}

// The program where it was built, or where it was taken to with this test or with the module; empty
// where it is in none of these places.
inline std::string gpu_program() {
  std::vector<std::filesystem::path> places = {OCTET_PROGRAM};
  std::vector<std::filesystem::path> near = {"/proc/self/exe"};
  if (const char* module = std::getenv("OCTET_CUDA_MODULE")) near.emplace_back(module);
  for (const std::filesystem::path& file : near) {
    std::error_code error;
    const auto folder = std::filesystem::weakly_canonical(file, error).parent_path();
    places.push_back(folder / "octet");
    places.push_back(folder.parent_path() / "octet");
  }
  for (const auto& place : places) {
    std::error_code error;
    if (std::filesystem::is_regular_file(place, error)) return place.string();
  }
  return "";
}

// Trains in folder/out; fails the test with what the program wrote where it fails.
inline void train(const ScratchFolder& folder, const std::string& out, const std::string& arguments,
                  const std::string& device = "cuda") {
  const std::string command = gpu_program() + " train " + run_yaml(folder) + " --device " + device +
                              " --quiet --set out=" + (folder / out) + " " + arguments +
                              " </dev/null >/dev/null 2>" + (folder / "err.txt");
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << command << "\n"
      << posix_files().read_text(folder / "err.txt");
}

}  // namespace octet::test

// Inside a test: skips where there is no GPU or no program.
#define OCTET_GPU_PROGRAM_OR_SKIP()                                                             \
  OCTET_GPU_OR_SKIP(gpu);                                                                       \
  if (octet::test::gpu_program().empty()) {                                                     \
    GTEST_SKIP() << "no program at " << OCTET_PROGRAM << " nor beside this test or the module"; \
  }
