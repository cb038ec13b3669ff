// A trainer on a disk that fails: a full one, a failed write, sync or rename, at each operation of
// a run in turn. What failed is said in one line, the newest checkpoint stays whole, and the run
// that goes on ends with the bits of one that met no failure.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "cli/train/tiny_run.h"
#include "io/checkpoint.h"
#include "train/run_setup.h"
#include "train/trainer.h"
#include "unit/base/error_of.h"
#include "unit/base/faulty_files.h"

namespace octet::resume_faulty_disk_test {
namespace {

using test::Fault;
using test::FaultMode;
using test::FaultyFiles;
using test::ScratchFolder;
using testing::HasSubstr;

RunConfig small_config(const ScratchFolder& folder, const std::string& out) {
  return test::tiny_config(
      folder, {"out=" + (folder / out), "recipe=coat", "model.layers=1", "train.steps=3",
               "train.eval_every=0", "train.save_every=1", "train.keep=1"});
}

// "no error", or what the run says.
std::string run(const RunConfig& config, Files& files, StartMode mode) {
  cpu::Backend backend = cpu::make_backend(1, cpu::detect_isa());
  ModelSpec spec;
  spec.vocab = config.model.vocab;
  const Dataset data = open_run_data(posix_files(), config, spec);
  return test::error_of([&] {
    Trainer trainer(config, data, {files, *backend.device, *backend.catalogue});
    trainer.run(mode, {});
  });
}

std::string last_bytes(const std::string& out) {
  std::string bytes;
  for (const char* name : {"model.safetensors", "optim.safetensors", "manifest.json"}) {
    bytes += posix_files().read_text(out + "/ckpt/step-000003/" + name);
  }
  return bytes;
}

int64_t newest_step(const std::string& out) {
  const auto newest = Checkpoints(posix_files(), out + "/ckpt").newest();
  return newest ? newest->manifest.step : 0;
}

std::string reason(const Fault& fault) {
  return fault.error == ENOSPC ? "No space left on device" : "Input/output error";
}

class FaultyDisk : public testing::TestWithParam<Fault> {
 protected:
  // One run that fails at operation `at`, and one that goes on; false where nothing failed.
  bool fails_and_recovers(int64_t at, const std::string& whole) {
    const ScratchFolder folder;
    const RunConfig config = small_config(folder, "run");
    FaultyFiles files(posix_files());
    Fault fault = GetParam();
    fault.at = at;
    files.set(fault);
    const std::string error = run(config, files, StartMode::fresh);
    if (error != "no error") {
      EXPECT_THAT(error, HasSubstr(reason(fault))) << at;
      EXPECT_THAT(error, HasSubstr(folder.path())) << at;
      EXPECT_EQ(error.find('\n'), std::string::npos) << at;
    }
    if (error.find("was not saved") != std::string::npos) {
      const int64_t step = newest_step(folder / "run");
      const std::string path = folder / fmt::format("run/ckpt/step-{:06}", step);
      EXPECT_THAT(error, HasSubstr(step == 0 ? "there is no whole checkpoint"
                                             : "the newest whole checkpoint is '" + path + "'"));
    }
    EXPECT_EQ(run(config, posix_files(), StartMode::resume), "no error") << at;
    EXPECT_EQ(last_bytes(folder / "run"), whole) << at;
    EXPECT_EQ(test::metrics(folder / "run").size(), 3u) << at;
    return files.count() > at;
  }
};

TEST_P(FaultyDisk, loses_nothing) {
  const ScratchFolder folder;
  ASSERT_EQ(run(small_config(folder, "whole"), posix_files(), StartMode::fresh), "no error");
  const std::string whole = last_bytes(folder / "whole");
  int64_t at = 0;
  // A checkpoint has a write for each tensor: of the later ones a sample is enough.
  while (fails_and_recovers(at, whole)) at += at < 10 ? 1 : 7;
  EXPECT_GE(at, 5);
}

INSTANTIATE_TEST_SUITE_P(
    operations, FaultyDisk,
    testing::Values(Fault{.mode = FaultMode::fail_from_then, .error = ENOSPC, .only = "write"},
                    Fault{.mode = FaultMode::fail_once, .error = EIO, .only = "write"},
                    Fault{.mode = FaultMode::fail_once, .error = EIO, .only = "sync"},
                    Fault{.mode = FaultMode::fail_once, .error = EIO, .only = "rename"},
                    Fault{.mode = FaultMode::fail_once, .error = EIO, .only = "close"},
                    Fault{.mode = FaultMode::fail_once, .error = ENOSPC, .only = "create"},
                    Fault{.mode = FaultMode::fail_once, .error = EIO, .only = "sync directory"}),
    [](const auto& info) {
      std::string name = info.param.only;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name + (info.param.mode == FaultMode::fail_once ? "_once" : "_from_then");
    });

}  // namespace
}  // namespace octet::resume_faulty_disk_test
