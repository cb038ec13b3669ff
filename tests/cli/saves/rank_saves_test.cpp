// Checkpoints that several ranks write at once.
#include "cli/saves/saves.h"

namespace octet::saves_rank_saves_test {
namespace {

using test::Saves;
using test::Setting;
using test::SlowFiles;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

class RankSaves : public Saves, public testing::WithParamInterface<Setting> {};

TEST_P(RankSaves, are_written_behind_the_steps_as_at_once) {
  for (const int ranks : {2, 3}) {
    std::vector<std::string> sets = GetParam().sets;
    sets.push_back(fmt::format("parallel.ranks={}", ranks));
    sets.push_back("train.async_save=false");
    ASSERT_EQ(run(config(fmt::format("once{}", ranks), sets), posix_files()), "no error");
    for (const std::string buffer : {"4096", "512MiB"}) {
      SlowFiles files(200us);
      sets.back() = "train.save_buffer=" + buffer;
      const std::string once = fmt::format("once{}", ranks);
      const std::string behind = fmt::format("behind{}-{}", ranks, buffer);
      ASSERT_EQ(run(config(behind, sets), files), "no error");
      for (int64_t step = 1; step <= 4; ++step)
        EXPECT_TRUE(bytes(behind, step) == bytes(once, step)) << behind << " " << step;
      EXPECT_EQ(test::metrics(folder_ / behind), test::metrics(folder_ / once));
      EXPECT_THAT(left_overs(behind), IsEmpty());
    }
  }
}

const Setting kSettings[] = {
    {"fp32", {}},
    {"bf16_accumulated", {"recipe=bf16", "train.accumulate=2"}},
    {"coat", {"recipe=coat"}},
    {"coat_whole_parameters_in_shards", {"recipe=coat", "parallel.shard=parameters"}},
    {"coat_without_shards", {"recipe=coat", "parallel.shard=none"}},
    {"coat_fast", {"recipe=coat-fast"}},
};
INSTANTIATE_TEST_SUITE_P(all, RankSaves, testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });

// In fp32 and strict the state does not depend on the number of ranks, and so the files do not.
TEST_F(RankSaves, have_the_tensor_files_of_one_rank) {
  const std::vector<std::string> strict = {"parallel.strict=true", "train.accumulate=6"};
  ASSERT_EQ(run(config("one", strict), posix_files()), "no error");
  for (const int ranks : {2, 3}) {
    const std::string out = fmt::format("of{}", ranks);
    ASSERT_EQ(run(config(out, {"parallel.strict=true", fmt::format("parallel.ranks={}", ranks),
                               fmt::format("train.accumulate={}", 6 / ranks)}),
                  posix_files()),
              "no error");
    for (int64_t step = 1; step <= 4; ++step)
      EXPECT_TRUE(tensors(out, step) == tensors("one", step)) << ranks << " " << step;
    EXPECT_TRUE(Checkpoints(posix_files(), folder_ / out + "/ckpt").newest().has_value());
  }
}

struct Failure {
  int rank;
  const char* name;
};

TEST_F(RankSaves, that_one_rank_cannot_write_fail_as_a_whole_and_name_it) {
  for (const std::string behind : {"true", "false"}) {
    for (const Failure& failure : {Failure{1, "model"}, Failure{2, "optim"}, Failure{0, "optim"}}) {
      const int rank = failure.rank;
      const std::string name = failure.name;
      const std::string out = fmt::format("{}{}-{}", name, rank, behind);
      SlowFiles good(0us), bad(0us);
      bad.refuse("step-000002", name + ".safetensors");
      const auto files = [&](int of) -> Files& { return of == rank ? bad : good; };
      EXPECT_EQ(run(config(out, {"parallel.ranks=3", "train.async_save=" + behind}), files),
                fmt::format("{2}[checkpoint] step 2 was not saved: [files] cannot write to "
                            "'DIR/{0}/ckpt/step-000002.TMP/{1}.safetensors': No space left on "
                            "device; the newest whole checkpoint is 'DIR/{0}/ckpt/step-000001'",
                            out, name, rank == 0 ? "" : fmt::format("[rank {}] ", rank)));
      EXPECT_THAT(whole_steps(out), ElementsAre(1));
      EXPECT_THAT(left_overs(out), IsEmpty());
    }
  }
}

// Each operation of rank 0's in turn: the folder, its part, the marker.
TEST_F(RankSaves, lose_nothing_where_an_operation_of_rank_0_fails) {
  const std::vector<std::string> sets = {"parallel.ranks=2", "train.steps=3", "train.keep=1"};
  ASSERT_EQ(run(config("whole", sets), posix_files()), "no error");
  int n_failed = 0;
  for (const char* operation : {"create", "open", "sync", "rename", "sync directory"}) {
    for (int64_t at = 0, n = 1; n > at; ++at) {
      const std::string out = fmt::format("{}-{}", std::string(operation).substr(0, 6), at);
      test::FaultyFiles bad(posix_files());
      bad.set({.at = at, .error = EIO, .only = operation});
      const auto files = [&](int rank) -> Files& { return rank == 0 ? bad : posix_files(); };
      const std::string error = run(config(out, sets), files);
      n = bad.count() > at ? at + 2 : 0;
      n_failed += error == "no error" ? 0 : 1;
      if (error != "no error") {
        EXPECT_THAT(error, HasSubstr("Input/output error")) << out;
      }
      ASSERT_EQ(run(config(out, sets), posix_files(), StartMode::resume), "no error") << out;
      EXPECT_TRUE(tensors(out, 3) == tensors("whole", 3)) << out;
      std::filesystem::remove_all(folder_ / out);
    }
  }
  EXPECT_GT(n_failed, 10);
}

TEST_F(RankSaves, of_a_signal_come_behind_those_that_run) {
  SlowFiles files(2ms);
  on_step_ = [&](const StepReport& report) {
    if (report.step == 3) stop_ = 15;
  };
  ASSERT_EQ(run(config("run", {"parallel.ranks=2", "train.save_every=2", "train.steps=9"}), files),
            "no error");
  EXPECT_EQ(result_.signal, 15);
  EXPECT_THAT(whole_steps("run"), ElementsAre(2, 3));
}

TEST_F(RankSaves, that_are_due_too_soon_wait_and_say_so_once) {
  SlowFiles files(2ms);
  ASSERT_EQ(run(config("slow", {"parallel.ranks=2", "train.keep=2"}), files), "no error");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("before step 1 has been written")));
  EXPECT_THAT(whole_steps("slow"), ElementsAre(3, 4));
}

// The error of another rank's step is told, and a save that ran is no checkpoint.
TEST_F(RankSaves, that_a_failing_rank_leaves_behind_are_dropped) {
  SlowFiles files(2ms);
  before_step_ = [](int64_t step) {
    if (step == 3) throw Error(ErrorCode::bad_data, "lost");
  };
  const RunConfig both = config("run", {"parallel.ranks=2", "train.save_every=2"});
  EXPECT_EQ(run(both, files), "lost");
  EXPECT_THAT(whole_steps("run"), IsEmpty());
  EXPECT_THAT(left_overs("run"), IsEmpty());
  before_step_ = {};
  EXPECT_EQ(run(both, posix_files(), StartMode::resume), "no error");
  EXPECT_THAT(left_overs("run"), IsEmpty());
}

}  // namespace
}  // namespace octet::saves_rank_saves_test
