// The job script recipes/slurm/train.sbatch, with stand-ins for Slurm's commands that do as these
// for one node with two tasks.
#include <gmock/gmock.h>

#include <filesystem>

#include "cli/launched/launched_run.h"

namespace octet::launched_slurm_test {
namespace {

using test::Environment;
using test::Launched;

class SlurmJob : public test::LaunchedRuns {
 protected:
  void SetUp() override {
    folder_.put("bin/scontrol", "#!/bin/sh\ncase $1 in requeue) echo \"$2\" >" + requeued_ +
                                    ";; *) printf '127.0.0.1\\nnode2\\n';; esac\n");
    folder_.put("bin/srun",
                "#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\n"
                "[[ $2 == \"$LOST_IN\" ]] && exit 75\nids=()\n"
                "for rank in 1 0; do\n"
                "  SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_STEP_NUM_TASKS=2 \"$@\" &\n"
                "  ids+=($!)\n  echo $! >" +
                    (folder_ / "rank$rank") +
                    "\ndone\nworst=0\nfor id in \"${ids[@]}\"; do wait $id; code=$?\n"
                    "  ((code > worst)) && worst=$code\ndone\nexit $worst\n");
    for (const char* name : {"bin/scontrol", "bin/srun"})
      std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  std::unique_ptr<Launched> submit(int64_t steps, const Environment& more = {}) {
    Environment all = {{"PATH", (folder_ / "bin") + ":" + ::getenv("PATH")},
                       {"OCTET_PROGRAM", OCTET_PROGRAM},
                       {"SLURM_JOB_ID", std::to_string(::getpid())},
                       {"SLURM_JOB_NODELIST", "node[1-2]"},
                       {"SLURM_CPUS_PER_TASK", "1"},
                       {"OCTET_JOIN_SECONDS", "20"}};
    all.insert(more.begin(), more.end());
    return start(all, {"bash", OCTET_SOURCE_DIR "/recipes/slurm/train.sbatch", config_, "--quiet",
                       "--set", "out=" + (folder_ / "run"), "--set", "train.save_every=2", "--set",
                       fmt::format("train.steps={}", steps)});
  }
  size_t n_steps() const { return test::metrics(folder_ / "run").size(); }

  const std::string requeued_ = folder_ / "requeued";
};

TEST_F(SlurmJob, goes_on_where_it_was_submitted_before) {
  for (const int steps : {3, 6}) {
    const auto job = submit(steps);
    EXPECT_EQ(job->code_within(kSeconds), 0) << job->err();
    EXPECT_EQ(n_steps(), static_cast<size_t>(steps));
  }
  EXPECT_FALSE(posix_files().exists(requeued_));
}

TEST_F(SlurmJob, goes_back_into_the_queue_where_a_rank_is_killed_but_not_for_ever) {
  for (const std::string restarts : {"0", "3"}) {
    std::filesystem::remove(requeued_);
    const size_t n_before = restarts == "0" ? 0 : n_steps();
    const auto job = submit(200'000, {{"SLURM_RESTART_COUNT", restarts}});
    await_steps("run", n_before + 20);
    ASSERT_EQ(::kill(std::stoi(posix_files().read_text(folder_ / "rank1")), SIGKILL), 0);
    EXPECT_EQ(job->code_within(30), 137) << job->err();
    EXPECT_THAT(job->err(), testing::HasSubstr("; `--resume` goes on"));
    EXPECT_EQ(posix_files().exists(requeued_), restarts == "0") << job->err();
  }
}

TEST_F(SlurmJob, goes_back_into_the_queue_where_a_rank_is_lost_before_it_trains) {
  EXPECT_EQ(submit(6, {{"LOST_IN", "doctor"}})->code_within(kSeconds), 75);
  EXPECT_TRUE(posix_files().exists(requeued_));
  EXPECT_FALSE(posix_files().exists(folder_ / "run"));
}

}  // namespace
}  // namespace octet::launched_slurm_test
