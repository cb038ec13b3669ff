// Checkpoints that are written in the background of the steps that follow.
#include "cli/saves/saves.h"

namespace octet::saves_test {
namespace {

using test::Saves;
using test::Setting;
using test::SlowFiles;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

class SameBytes : public Saves, public testing::WithParamInterface<Setting> {};

// The disk is slow and the ring smaller than the state: an update that did not wait would be seen.
TEST_P(SameBytes, are_written_as_at_once) {
  std::vector<std::string> sets = GetParam().sets;
  sets.push_back("train.async_save=false");
  ASSERT_EQ(run(config("once", sets), posix_files()), "no error");
  for (const std::string buffer : {"4096", "40KiB", "512MiB"}) {
    SlowFiles files(200us);
    sets.back() = "train.save_buffer=" + buffer;
    ASSERT_EQ(run(config("behind" + buffer, sets), files), "no error");
    for (int64_t step = 1; step <= 4; ++step)
      EXPECT_TRUE(bytes("behind" + buffer, step) == bytes("once", step)) << buffer << " " << step;
    EXPECT_EQ(test::metrics(folder_ / ("behind" + buffer)), test::metrics(folder_ / "once"));
  }
}

const Setting kSaveSettings[] = {
    {"fp32", {}},
    {"bf16", {"recipe=bf16"}},
    {"bf16_accumulated", {"recipe=bf16", "train.accumulate=3"}},
    {"coat", {"recipe=coat"}},
    {"coat_accumulated", {"recipe=coat", "train.accumulate=2"}},
    {"coat_fast_without_clipping", {"recipe=coat-fast", "optim.clip=0"}},
    {"fp16_with_a_loss_scale", {"recipe={base: hif8, compute: fp16, loss_scaling: adaptive}"}},
    {"sampled", {"recipe=bf16", "train.telemetry=1"}},
};
INSTANTIATE_TEST_SUITE_P(all, SameBytes, testing::ValuesIn(kSaveSettings),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Saves, tell_a_full_disk_with_the_line_of_a_save_at_once) {
  for (const std::string name : {"model", "optim"}) {
    for (const std::string behind : {"false", "true"}) {
      SlowFiles files(0us);
      files.refuse("step-000002", name + ".safetensors");
      const std::string out = name + "-" + behind;
      EXPECT_EQ(run(config(out, {"train.async_save=" + behind}), files),
                fmt::format("[checkpoint] step 2 was not saved: [files] cannot write to "
                            "'DIR/{0}/ckpt/step-000002.TMP/{1}.safetensors': No space left on "
                            "device; the newest whole checkpoint is 'DIR/{0}/ckpt/step-000001'",
                            out, name));
      EXPECT_THAT(left_overs(out), IsEmpty());
    }
  }
}

// Not only when the next save is due.
TEST_F(Saves, that_fail_end_the_run_behind_the_next_step) {
  SlowFiles files(0us);
  files.refuse("step-000002");
  int64_t last = 0;
  on_step_ = [&](const StepReport& report) {
    last = report.step;
    for (int i = 0; report.step > 2 && i < 20; ++i) std::this_thread::sleep_for(10ms);
  };
  const std::string line = run(config("run", {"train.save_every=2", "train.steps=40"}), files);
  EXPECT_THAT(line, HasSubstr("[checkpoint] step 2 was not saved: [files] cannot write to"));
  EXPECT_THAT(line, HasSubstr("there is no whole checkpoint"));
  EXPECT_LE(last, 4);
  on_step_ = {};
  EXPECT_EQ(run(config("run", {"train.steps=4"}), posix_files(), StartMode::resume), "no error");
}

TEST_F(Saves, that_are_due_too_soon_wait_and_say_so_once) {
  SlowFiles files(3ms);
  ASSERT_EQ(run(config("slow", {"train.keep=2"}), files), "no error");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("before step 1 has been written")));
  EXPECT_THAT(whole_steps("slow"), ElementsAre(3, 4));
  EXPECT_THAT(left_overs("slow"), IsEmpty());
  std::vector<std::string> saved;
  for (const std::string& line : infos_)
    if (line.starts_with("saved step ")) saved.push_back(line.substr(0, 12));
  EXPECT_THAT(saved, ElementsAre("saved step 1", "saved step 2", "saved step 3", "saved step 4"));
}

TEST_F(Saves, of_a_signal_come_behind_those_that_run) {
  SlowFiles files(2ms);
  on_step_ = [&](const StepReport& report) {
    if (report.step == 3) {
      EXPECT_GT(files.n_begun(), 1);  // the save of step 2 is under way
      stop_ = 15;
    }
  };
  ASSERT_EQ(run(config("run", {"train.save_every=2", "train.steps=9"}), files), "no error");
  EXPECT_EQ(result_.signal, 15);
  EXPECT_EQ(result_.step, 3);
  EXPECT_THAT(whole_steps("run"), ElementsAre(2, 3));
  stop_ = 0;
  on_step_ = {};
  ASSERT_EQ(run(config("run", {"train.steps=9"}), posix_files(), StartMode::resume), "no error");
  ASSERT_EQ(run(config("whole", {"train.steps=9"}), posix_files()), "no error");
  EXPECT_TRUE(bytes("run", 9) == bytes("whole", 9));
}

TEST_F(Saves, of_the_lowest_validation_loss_are_whole_when_the_next_step_begins) {
  SlowFiles files(500us);
  int64_t n_checked = 0;
  on_step_ = [&](const StepReport& report) {
    if (report.step == 1) return;
    EXPECT_THAT(whole_steps("run"), testing::Contains(report.step - 1));
    ++n_checked;
  };
  // At this rate each evaluation is the best so far.
  ASSERT_EQ(run(config("run", {"train.save_every=0", "train.eval_every=1", "train.keep_best=true"}),
                files),
            "no error");
  EXPECT_EQ(n_checked, 3);
}

TEST_F(Saves, leave_their_seconds_in_the_metrics) {
  SlowFiles files(1ms);
  on_step_ = [](const StepReport& report) {
    if (report.step == 3) std::this_thread::sleep_for(200ms);
  };
  ASSERT_EQ(run(config("run", {"train.save_every=2", "train.save_buffer=4096"}), files),
            "no error");
  std::istringstream text(posix_files().read_text(folder_ / "run/metrics.jsonl"));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  int n_saves = 0;
  for (const auto& line : lines) {
    if (!line.contains("save_s")) continue;
    ++n_saves;
    // Nearly all of the state had to leave the ring first.
    EXPECT_GT(line.at("save_stall_s"), 0.3 * line.at("save_s").get<double>());
    EXPECT_LE(line.at("save_stall_s"), line.at("save_s"));
    EXPECT_GT(line.at("save_s"), 0.02);
  }
  EXPECT_EQ(n_saves, 1);
}

TEST_F(Saves, that_fail_beside_another_error_are_told_as_well) {
  SlowFiles files(1ms);
  files.refuse("optim.safetensors");
  const auto lost = [](int64_t step) {
    if (step == 2) throw Error(ErrorCode::bad_data, "lost");
  };
  before_step_ = lost;
  EXPECT_EQ(run(config("run"), files), "lost");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("[checkpoint] step 1 was not saved")));
  before_step_ = {};
  on_step_ = [&](const StepReport& report) { lost(report.step); };
  EXPECT_THAT(
      run(config("other"), files),
      testing::StartsWith("lost; saving the state of step 2 failed too: [checkpoint] step "));
}

// Faults that would be met at the first save, after hours of work, are met before the first step.
class Rehearsal : public Saves {
 protected:
  std::string run_without_steps(const RunConfig& config, const std::function<Files&(int)>& files) {
    on_step_ = [](const StepReport& report) { ADD_FAILURE() << report.step; };
    const std::string line = run(config, files);
    EXPECT_FALSE(posix_files().exists(folder_ / "run/ckpt"));
    on_step_ = {};
    return line;
  }
};

TEST_F(Rehearsal, tells_that_a_checkpoint_has_no_room) {
  SlowFiles files(0us);
  files.leave_room(20000);
  EXPECT_THAT(
      run_without_steps(config("run"), [&](int) -> Files& { return files; }),
      testing::MatchesRegex(R"(\[checkpoint\] expected [0-9.]+ KiB free in 'DIR/run' for a )"
                            R"(checkpoint, got 19.5 KiB \(make room, or choose another )"
                            R"(folder with out\))"));
}

TEST_F(Rehearsal, warns_of_checkpoints_that_will_have_none) {
  ASSERT_EQ(run(config("one"), posix_files()), "no error");
  const uint64_t n_bytes = bytes("one", 4).size();
  for (const auto& [keep, room, has_warning] :
       {std::tuple{1, 3, false}, {2, 3, true}, {9, 3, true}, {9, 6, false}}) {
    SlowFiles files(0us);
    files.leave_room(static_cast<uint64_t>(room) * n_bytes);
    const std::string out = fmt::format("keep{}-{}", keep, room);
    ASSERT_EQ(run(config(out, {fmt::format("train.keep={}", keep)}), files), "no error");
    const bool warned = std::ranges::any_of(warnings_, [](const std::string& line) {
      return line.find("more checkpoints will take") != line.npos;
    });
    EXPECT_EQ(warned, has_warning) << out;
  }
}

TEST_F(Rehearsal, tells_a_folder_whose_files_take_nothing) {
  for (const int rank : {0, 1}) {
    SlowFiles good(0us), bad(0us);
    bad.refuse("step-000000");
    const auto files = [&](int of) -> Files& { return of == rank ? bad : good; };
    EXPECT_EQ(run_without_steps(config("run", {"parallel.ranks=2"}), files),
              fmt::format("{}[files] cannot write to 'DIR/run/ckpt/step-000000.TMP/"
                          "model.safetensors': No space left on device",
                          rank == 0 ? "" : "[rank 1] "));
    std::filesystem::remove_all(folder_ / "run");
  }
}

TEST_F(Rehearsal, tells_a_rank_that_sees_another_file_system) {
  test::FaultyFiles other(posix_files());
  other.set({.at = 0, .error = ENOENT, .only = "open"});
  const auto files = [&](int of) -> Files& { return of == 1 ? other : posix_files(); };
  EXPECT_THAT(run_without_steps(config("run", {"parallel.ranks=2"}), files),
              HasSubstr("[rank 1] [files] cannot open 'DIR/run/ckpt/step-000000.TMP/model."));
}

TEST_F(Rehearsal, leaves_nothing) {
  before_step_ = [&](int64_t step) {
    if (step == 1) {
      EXPECT_FALSE(posix_files().exists(folder_ / "run/ckpt"));
    }
  };
  ASSERT_EQ(run(config("run"), posix_files()), "no error");
  std::filesystem::remove_all(folder_ / "run/ckpt/step-000004");
  before_step_ = [&](int64_t) { EXPECT_THAT(left_overs("run"), IsEmpty()); };
  ASSERT_EQ(run(config("run"), posix_files(), StartMode::resume), "no error");
}

}  // namespace
}  // namespace octet::saves_test
