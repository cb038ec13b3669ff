// Small runs on a file layer of the test's own, by one rank or by several as threads.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "backends/cpu/backend.h"
#include "cli/saves/slow_files.h"
#include "cli/train/tiny_run.h"
#include "comm/local.h"
#include "io/checkpoint.h"
#include "train/run_setup.h"
#include "train/trainer.h"
#include "unit/base/error_of.h"

namespace octet::test {

// Setting of a run, by name.
struct Setting {
  const char* name;
  std::vector<std::string> sets;
};
inline void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.name;
}

class Saves : public testing::Test {
 protected:
  RunConfig config(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> sets = {"out=" + (folder_ / out), "train.save_every=1",
                                     "train.eval_every=0", "train.steps=4"};
    sets.insert(sets.end(), more.begin(), more.end());
    return tiny_config(folder_, sets);
  }
  std::string run(const RunConfig& config, Files& files, StartMode mode = StartMode::fresh) {
    return run(
        config, [&](int) -> Files& { return files; }, mode);
  }
  // "no error", or what the run says, without the names of temporary folders. Each rank has files
  // of its own.
  std::string run(const RunConfig& config, const std::function<Files&(int rank)>& files,
                  StartMode mode = StartMode::fresh) {
    infos_.clear(), warnings_.clear();
    TrainHooks hooks;
    hooks.stop = &stop_;
    hooks.on_step = on_step_;
    hooks.before_step = before_step_;
    hooks.log = Log([&](LogLevel level, const std::string& message) {
      (level == LogLevel::warning ? warnings_ : infos_).push_back(message);
    });
    ModelSpec spec;
    spec.vocab = config.model.vocab;
    const Dataset data = open_run_data(posix_files(), config, spec);
    const auto train = [&](Group* group) {
      const int rank = group == nullptr ? 0 : group->rank();
      cpu::Backend backend = cpu::make_backend(1, cpu::detect_isa(), cpu::RowSums::library, group);
      Trainer trainer(config, data, {files(rank), *backend.device, *backend.catalogue, "", group});
      if (rank == 0) {
        result_ = trainer.run(mode, hooks);
      } else {
        trainer.run(mode, {.stop = &stop_});
      }
    };
    const std::string error = error_of(
        [&] {
          if (config.parallel.ranks == 1) return train(nullptr);
          auto groups = local_groups(static_cast<int>(config.parallel.ranks));
          run_local_ranks(groups, [&](Group& group) { train(&group); });
        },
        folder_.path());
    return std::regex_replace(error, std::regex(R"(\.[0-9]+-[0-9a-f]{8}\.tmp)"), ".TMP");
  }
  std::string file(const std::string& out, int64_t step, const std::string& name) {
    return posix_files().read_text(folder_ / fmt::format("{}/ckpt/step-{:06}/{}", out, step, name));
  }
  std::string tensors(const std::string& out, int64_t step) {
    return file(out, step, "model.safetensors") + file(out, step, "optim.safetensors");
  }
  std::string bytes(const std::string& out, int64_t step) {
    return tensors(out, step) + file(out, step, "manifest.json") + file(out, step, "COMPLETE");
  }
  std::vector<int64_t> whole_steps(const std::string& out) {
    std::vector<int64_t> steps;
    for (const CheckpointEntry& entry : Checkpoints(posix_files(), folder_ / out + "/ckpt").list())
      if (entry.is_whole()) steps.push_back(entry.step);
    return steps;
  }
  std::vector<std::string> left_overs(const std::string& out) {
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : posix_files().list(folder_ / out + "/ckpt"))
      if (entry.name.ends_with(".tmp")) names.push_back(entry.name);
    return names;
  }

  const ScratchFolder folder_;
  std::atomic<int> stop_ = 0;
  std::function<void(const StepReport&)> on_step_;
  std::function<void(int64_t)> before_step_;
  TrainResult result_;
  std::vector<std::string> infos_, warnings_;
};

}  // namespace octet::test
