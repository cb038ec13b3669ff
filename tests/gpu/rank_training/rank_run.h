// Runs of a model of 0.14 M parameters on several devices, a process each.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "comm/tcp/socket.h"
#include "gpu/training/program_run.h"

namespace octet::test {

inline std::string small_yaml(const ScratchFolder& folder) {
  const std::string data = folder.put("text.txt", easy_text(20000));
  return folder.put(
      "small.yaml",
      "model: {kind: llama, hidden: 64, layers: 2, heads: 4, ffn: 192, vocab: 256, seq: 32}\n"
      "optim: {lr: 1.0e-2, warmup: 1}\n"
      "data: {train: [" +
          data +
          "], val_fraction: 0.1}\n"
          "train: {steps: 4, batch: 1, deterministic: true, eval_every: 2, eval_bytes: 128, "
          "save_every: 0, keep: "
          "9}\n");
}

// The program looks for its module beside itself: a folder with it and the one of this test.
inline std::string program_beside_module(const ScratchFolder& folder) {
  std::error_code error;
  const std::string program = folder / "octet";
  std::filesystem::create_hard_link(gpu_program(), program, error);
  if (error) std::filesystem::copy_file(gpu_program(), program);
  std::filesystem::create_symlink(std::filesystem::absolute(gpu_module()),
                                  folder / "liboctet_cuda.so");
  return program;
}

inline bool has_devices(int n) {
  try {
    cuda::make_backend({.module = gpu_module(), .device = n - 1, .n_threads = 1});
    return !gpu_program().empty();
  } catch (const Error& error) {
    // A process works on one device: one that is asked for after another is there all the same.
    const bool is_another =
        std::string_view(error.what()).find("works on already") != std::string_view::npos;
    return is_another && !gpu_program().empty();
  }
}

// The emulated module is NCCL's stand-in as well.
inline std::string with_nccl() {
  return is_emulated() ? "OCTET_NCCL=" + gpu_module() : "";
}

// Rank i on the host of the name hosts[i], as a launcher starts it: command(i). It sees its host's
// devices alone, one a rank. What rank 0 says goes to `to`, and the errors of rank i to errors + i.
// The status is rank 0's.
inline std::string command_on_hosts(const std::vector<std::string>& hosts,
                                    const std::function<std::string(size_t rank)>& command,
                                    const std::string& to, const std::string& errors) {
  const int port = tcp::port_of(tcp::listen_at("127.0.0.1", 0));
  std::string text;
  for (size_t rank = hosts.size(); rank-- > 0;) {
    const auto local =
        std::count(hosts.begin(), hosts.begin() + static_cast<int64_t>(rank), hosts[rank]);
    std::string devices;
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (hosts[i] == hosts[rank]) devices += fmt::format("{}{}", devices.empty() ? "" : ",", i);
    }
    text += fmt::format(
        "env WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} RANK={} LOCAL_RANK={} "
        "OCTET_HOST={} CUDA_VISIBLE_DEVICES={} {} </dev/null {}",
        hosts.size(), port, rank, local, hosts[rank], devices, command(rank),
        rank == 0 ? to : fmt::format(">/dev/null 2>{}{} & ", errors, rank));
  }
  return text + "; code=$?; wait; exit $code";
}

class RankRuns : public testing::Test {
 protected:
  // The status of `octet train` in folder/out; `environment` is NAME=VALUE, one after another.
  int run(const std::string& out, const std::string& flags, const std::string& environment = "") {
    const std::string command = environment + " " + program_ + " train " + config_ +
                                " --quiet --set out=" + (folder_ / out) + " " + flags +
                                " </dev/null >/dev/null 2>" + (folder_ / "err.txt");
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void train_on_hosts(const std::vector<std::string>& hosts, const std::string& out,
                      const std::string& flags) {
    const std::string command = command_on_hosts(
        hosts,
        [&](size_t) {
          return fmt::format("{} {} train {} --quiet --device cuda --set out={} {}", with_nccl(),
                             program_, config_, folder_ / out, flags);
        },
        ">/dev/null 2>" + (folder_ / "err.txt"), folder_ / "err-");
    const int status = std::system(command.c_str());
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << flags << ": " << posix_files().read_text(folder_ / "err.txt");
  }
  void train(const std::string& out, const std::string& flags,
             const std::string& environment = "") {
    ASSERT_EQ(run(out, "--device cuda " + flags, environment), 0)
        << flags << ": " << posix_files().read_text(folder_ / "err.txt");
  }
  void expect_learns(const std::string& out) {
    const auto lines = metrics(folder_ / out);
    ASSERT_FALSE(lines.empty());
    for (const auto& line : lines) {
      EXPECT_TRUE(std::isfinite(line.at("loss").get<double>()));
      EXPECT_GT(line.at("grad_norm").get<double>(), 0.0);
    }
    EXPECT_LT(lines.back().at("loss").get<double>(), lines[0].at("loss").get<double>());
  }
  std::vector<std::string> losses(const std::string& out) { return loss_bits(folder_ / out); }
  std::vector<double> val_losses(const std::string& out) {
    const std::vector<double> losses = test::val_losses(folder_ / out);
    EXPECT_EQ(losses.size(), 2u);
    return losses;
  }
  // Tensors of a checkpoint: `kind` is model or optim.
  std::string tensors(const std::string& out, const std::string& kind, int64_t step = 4) {
    return posix_files().read_text(
        folder_ / fmt::format("{}/ckpt/step-{:06}/{}.safetensors", out, step, kind));
  }
  std::string all_tensors(const std::string& out, int64_t step = 4) {
    return checkpoint_bytes(folder_ / out, step);
  }

  const ScratchFolder folder_;
  const std::string config_ = small_yaml(folder_);
  const std::string program_ = program_beside_module(folder_);
};

}  // namespace octet::test

// Inside a test: skips where there are not as many devices.
#define OCTET_DEVICES_OR_SKIP(n) \
  if (!octet::test::has_devices(n)) GTEST_SKIP() << "no program, or not " << (n) << " GPUs"
