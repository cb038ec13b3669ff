// The room for the next checkpoint and the run's folder, while steps are taken.
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "cli/saves/saves.h"

namespace octet::saves_room_test {
namespace {

using test::Saves;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kFolderIsGone =
    "[train] expected the run's folder to stay, but 'DIR/run/metrics.jsonl' was removed, moved or "
    "replaced; the state of step 3 was saved in 'DIR/run'";

// A disk of so many bytes for all that lies below a folder.
class SmallDisk : public test::FaultyFiles {
 public:
  SmallDisk(std::string folder, uint64_t n_bytes)
      : FaultyFiles(posix_files()), folder_(std::move(folder)), n_bytes_(n_bytes) {}
  std::optional<uint64_t> free_bytes(const std::string&) const override {
    return n_bytes_ - std::min(used(), n_bytes_);
  }
  std::unique_ptr<FileWriter> create(const std::string& path) override {
    return std::make_unique<Writer>(*this, FaultyFiles::create(path), path);
  }

 private:
  struct Writer : FileWriter {
    Writer(const SmallDisk& files, std::unique_ptr<FileWriter> file, std::string name)
        : owner(files), under(std::move(file)), path(std::move(name)) {}
    void write(std::span<const std::byte> bytes) override {
      if (bytes.size() > *owner.free_bytes(path)) throw_io_error("write to", path, ENOSPC);
      under->write(bytes);
    }
    void sync() override { under->sync(); }
    void close() override { under->close(); }
    bool is_at(const std::string& at) const override { return under->is_at(at); }
    const SmallDisk& owner;
    std::unique_ptr<FileWriter> under;
    std::string path;
  };
  uint64_t used() const {
    uint64_t n_bytes = 0;
    std::error_code gone;  // a save may be at work there
    for (std::filesystem::recursive_directory_iterator it(folder_, gone), end; !gone && it != end;
         it.increment(gone)) {
      std::error_code error;
      const uint64_t n = it->is_regular_file(error) ? it->file_size(error) : 0;
      n_bytes += error ? 0 : n;
    }
    return n_bytes;
  }
  std::string folder_;
  uint64_t n_bytes_;
};

class Room : public Saves {
 protected:
  Room() {
    on_step_ = [&](const StepReport& report) { last_ = report.step; };
  }
  std::vector<std::string> small(const std::vector<std::string>& more) {
    std::vector<std::string> sets = {"model.layers=1", "train.batch=1", "train.steps=3000"};
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  }
  uint64_t checkpoint_bytes() {
    EXPECT_EQ(run(config("size", small({"train.steps=1"})), posix_files()), "no error");
    return bytes("size", 1).size();
  }
  int64_t last_ = 0;
};

// A disk that metrics filled took no state, and all steps since the last checkpoint were lost.
TEST_F(Room, of_a_checkpoint_is_not_taken_by_metrics) {
  const uint64_t n_bytes = checkpoint_bytes();
  const struct {
    const char *name, *ranks, *save_every;
    int64_t n_checkpoints;  // for which there is room
  } cases[] = {{"one", "1", "0", 1}, {"behind", "1", "10", 2}, {"ranks", "2", "0", 1}};
  for (const auto& [name, ranks, save_every, n_checkpoints] : cases) {
    const std::string out = fmt::format("{}/run", name);
    SmallDisk files(folder_ / name, static_cast<uint64_t>(n_checkpoints) * n_bytes + (180 << 10));
    const RunConfig config =
        this->config(out, small({fmt::format("parallel.ranks={}", ranks), "train.keep=1",
                                 fmt::format("train.save_every={}", save_every)}));
    const std::string line = run(config, files);
    EXPECT_THAT(line, HasSubstr(fmt::format(
                          "[checkpoint] expected room in 'DIR/{}' for metrics and the next "
                          "checkpoint, got none for both; the state of step {} was saved",
                          out, last_)))
        << name;
    EXPECT_GT(last_, 20) << name;
    EXPECT_THAT(whole_steps(out), ElementsAre(last_)) << name;
    EXPECT_EQ(test::metrics(folder_ / out).size(), static_cast<size_t>(last_)) << name;
  }
}

TEST_F(Room, that_others_took_is_told_and_ends_no_run) {
  test::SlowFiles files(std::chrono::microseconds(0));
  const uint64_t n_bytes = checkpoint_bytes();
  files.leave_room(3 * n_bytes);
  on_step_ = [&](const StepReport& report) {
    if (report.step == 2) files.leave_room(n_bytes / 2);
  };
  EXPECT_EQ(run(config("run", small({"train.steps=5", "train.save_every=0"})), files), "no error");
  EXPECT_EQ(std::ranges::count_if(warnings_,
                                  [](const std::string& line) {
                                    return line.find("the next checkpoint will take") != line.npos;
                                  }),
            1);
}

// It went on, saved into a new folder of that name, and said nothing.
TEST_F(Room, a_run_whose_folder_is_removed_saves_its_state_and_says_so) {
  for (const char* ranks : {"1", "2"}) {
    const std::string out = folder_ / "run";
    on_step_ = [&](const StepReport& report) {
      last_ = report.step;
      if (report.step == 3) std::filesystem::remove_all(out);
    };
    // A save at work would make files in the folder while it is being removed.
    const auto sets = small(
        {"train.save_every=2", "train.async_save=false", fmt::format("parallel.ranks={}", ranks)});
    EXPECT_THAT(run(config("run", sets), posix_files()), HasSubstr(kFolderIsGone));
    EXPECT_EQ(last_, 3);
    EXPECT_THAT(whole_steps("run"), ElementsAre(3));
    on_step_ = [&](const StepReport& report) { stop_ = report.step == 4 ? SIGTERM : 0; };
    EXPECT_EQ(run(config("run", sets), posix_files(), StartMode::resume), "no error");
    EXPECT_EQ(result_.step, 4);
    stop_ = 0;
    std::filesystem::remove_all(out);
  }
}

// The checkpoint of step 2 fails, or comes into the folder that the one of step 3 makes.
TEST_F(Room, a_run_whose_folder_is_moved_during_a_save_saves_its_state_and_says_so) {
  for (const char* ranks : {"1", "2"}) {
    const std::string out = folder_ / "run", away = folder_ / "away";
    on_step_ = [&](const StepReport& report) {
      if (report.step == 3) std::filesystem::rename(out, away);
    };
    test::SlowFiles files(std::chrono::milliseconds(2));
    const auto sets = small({"train.save_every=2", fmt::format("parallel.ranks={}", ranks)});
    EXPECT_THAT(run(config("run", sets), files), HasSubstr(kFolderIsGone)) << ranks;
    EXPECT_THAT(whole_steps("run"), Contains(3)) << ranks;
    std::filesystem::remove_all(out);
    std::filesystem::remove_all(away);
  }
}

TEST_F(Room, a_run_whose_folder_another_one_took_leaves_it_alone) {
  const std::string out = folder_ / "run";
  on_step_ = [&](const StepReport& report) {
    if (report.step != 3) return;
    std::filesystem::rename(out, folder_ / "away");
    folder_.put("run/.lock", "process 1 on host other\n");
  };
  EXPECT_THAT(run(config("run", small({"train.save_every=0"})), posix_files()),
              HasSubstr("but 'DIR/run/.lock' was removed, moved or replaced by another run"));
  EXPECT_FALSE(posix_files().exists(folder_ / "run/ckpt"));
}

// The last step, too.
TEST_F(Room, a_folder_that_is_removed_in_the_last_step_is_told) {
  before_step_ = [&](int64_t step) {
    if (step == 2) std::filesystem::remove_all(folder_ / "run");
  };
  EXPECT_THAT(run(config("run", small({"train.steps=2", "train.save_every=0"})), posix_files()),
              HasSubstr("the state of step 2 was saved"));
}

}  // namespace
}  // namespace octet::saves_room_test
