// Faults around a run cost no step: data that cannot be read, a full disk under the metrics, extras
// that cannot be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "backends/cpu/backend.h"
#include "cli/train/tiny_run.h"
#include "train/run_setup.h"
#include "train/state_io.h"
#include "train/trainer.h"
#include "unit/base/error_of.h"
#include "unit/base/faulty_files.h"

namespace octet::train_failing_run_test {
namespace {

using test::error_of;
using test::metrics;
using test::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;

// Files of which one kind cannot be read or written while `is_failing` is set.
class FailingFiles : public test::FaultyFiles {
 public:
  explicit FailingFiles(std::string part) : FaultyFiles(posix_files()), part_(std::move(part)) {}
  // Atomic: batches may be read in a thread of their own.
  std::atomic<bool> is_failing = false;
  mutable std::atomic<int64_t> n_good = 0;   // that still work once is_failing is set
  mutable std::atomic<int64_t> n_reads = 0;  // of the files that it concerns

  std::unique_ptr<FileReader> open(const std::string& path) const override {
    auto file = FaultyFiles::open(path);
    if (!concerns(path)) return file;
    return std::make_unique<Reader>(*this, std::move(file));
  }
  std::unique_ptr<FileWriter> create(const std::string& path) override {
    if (concerns(path) && fails()) throw_io_error("create", path, ENOSPC);
    auto file = FaultyFiles::create(path);
    if (!concerns(path)) return file;
    return std::make_unique<Writer>(*this, std::move(file), path);
  }
  void create_directory(const std::string& path) override {
    if (concerns(path) && fails()) throw_io_error("create directory", path, EACCES);
    FaultyFiles::create_directory(path);
  }

 private:
  struct Reader : FileReader {
    Reader(const FailingFiles& files, std::unique_ptr<FileReader> file)
        : owner(files), under(std::move(file)) {}
    const std::string& path() const override { return under->path(); }
    uint64_t size() const override { return under->size(); }
    void read_at(uint64_t offset, std::span<std::byte> out) const override {
      ++owner.n_reads;
      if (owner.fails()) throw_io_error("read", path(), EIO);
      under->read_at(offset, out);
    }
    const FailingFiles& owner;
    std::unique_ptr<FileReader> under;
  };
  struct Writer : FileWriter {
    Writer(const FailingFiles& files, std::unique_ptr<FileWriter> file, std::string name)
        : owner(files), under(std::move(file)), path(std::move(name)) {}
    void write(std::span<const std::byte> bytes) override {
      if (!owner.fails()) return under->write(bytes);
      under->write(bytes.first(bytes.size() / 2));
      throw_io_error("write to", path, ENOSPC);
    }
    void sync() override { under->sync(); }
    void close() override { under->close(); }
    const FailingFiles& owner;
    std::unique_ptr<FileWriter> under;
    std::string path;
  };

  bool concerns(const std::string& path) const { return path.find(part_) != path.npos; }
  bool fails() const { return is_failing && --n_good < 0; }

  std::string part_;
};

class FailingRun : public testing::Test {
 protected:
  FailingRun() {
    const std::string text = test::easy_text(1500);
    std::string bytes;
    for (const char ch : text) (bytes += ch) += '\0';
    folder_.put("tokens.bin", bytes);
  }

  RunConfig config(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> sets = {
        "out=" + (folder_ / out), "data.train=[" + (folder_ / "tokens.bin") + "]",
        "data.val_fraction=0.2",  "recipe=coat-fast",
        "train.accumulate=3",     "train.telemetry_every=2"};
    sets.insert(sets.end(), more.begin(), more.end());
    return test::tiny_config(folder_, sets);
  }

  // "no error", or what the run says. The files begin to fail after step `last_good`.
  std::string run(const RunConfig& config, Files& files, StartMode mode,
                  const std::function<void(const StepReport&)>& on_step = {}) {
    warnings_.clear();
    TrainHooks hooks;
    hooks.on_step = on_step;
    hooks.log = Log([&](LogLevel level, const std::string& message) {
      if (level == LogLevel::warning) warnings_.push_back(message);
    });
    cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa());
    const Dataset data =
        open_run_data(files, config, resolved(ModelSpec{.vocab = config.model.vocab}));
    return error_of(
        [&] {
          TrainerMachine machine{files, *backend.device, *backend.catalogue, "test"};
          machine.reads_ahead = reads_ahead_;
          Trainer trainer(config, data, machine);
          if (watch_) watch_(trainer);
          trainer.run(mode, hooks);
        },
        folder_.path());
  }

  void expect_same_as_whole(const std::string& out, const std::vector<std::string>& more = {}) {
    ASSERT_EQ(run(config("whole", more), posix_files(), StartMode::fresh), "no error");
    EXPECT_EQ(metrics(folder_ / out), metrics(folder_ / "whole"));
    for (const char* name : {"model.safetensors", "optim.safetensors", "manifest.json"}) {
      const std::string end = std::string("/ckpt/step-000006/") + name;
      EXPECT_TRUE(posix_files().read_bytes((folder_ / out) + end) ==
                  posix_files().read_bytes((folder_ / "whole") + end))
          << name;
    }
  }

  ScratchFolder folder_;
  std::vector<std::string> warnings_;
  std::function<void(Trainer&)> watch_;
  std::optional<bool> reads_ahead_;
};

// In the middle of a step: the first of its three micro-batches has been read and used.
TEST_F(FailingRun, data_that_cannot_be_read_ends_it_with_its_state_saved) {
  for (const int64_t n_reads : {0, 2, 3, 5}) {
    const std::string out = fmt::format("reads-{}", n_reads);
    FailingFiles files("tokens.bin");
    files.n_good = n_reads;
    const std::string error =
        run(config(out), files, StartMode::fresh,
            [&](const StepReport& report) { files.is_failing = report.step == 3; });
    EXPECT_EQ(error,
              "[files] cannot read 'DIR/tokens.bin': Input/output error; the state of step "
              "3 was saved");
    EXPECT_EQ(run(config(out), posix_files(), StartMode::resume), "no error");
    expect_same_as_whole(out);
    std::filesystem::remove_all(folder_ / "whole");
  }
}

// The error is known before: the step that wants the rows meets it.
TEST_F(FailingRun, data_that_cannot_be_read_ahead_ends_the_step_that_wants_it) {
  const std::vector<std::string> sets = {"train.eval_every=0"};  // which reads them too
  for (const int64_t n_good : {0, 2, 4}) {
    const std::string out = fmt::format("ahead-{}", n_good);
    FailingFiles files("tokens.bin");
    files.n_good = n_good;
    int64_t last = 0;
    reads_ahead_ = true;
    const std::string error =
        run(config(out, sets), files, StartMode::fresh, [&](const StepReport& report) {
          files.is_failing = report.step >= 2;
          last = report.step;
        });
    EXPECT_GE(last, 2);
    EXPECT_LE(last, 4);
    EXPECT_EQ(error, fmt::format("[files] cannot read 'DIR/tokens.bin': Input/output error; the "
                                 "state of step {} was saved",
                                 last));
    EXPECT_EQ(run(config(out, sets), posix_files(), StartMode::resume), "no error");
    reads_ahead_ = false;
    expect_same_as_whole(out, sets);
    std::filesystem::remove_all(folder_ / "whole");
  }
}

TEST_F(FailingRun, that_reads_ahead_stops_and_goes_on_with_the_same_bits) {
  reads_ahead_ = true;
  for (const int64_t last : {2, 5}) {
    const std::string error =
        run(config("run"), posix_files(), last == 2 ? StartMode::fresh : StartMode::resume,
            [&](const StepReport& report) {
              if (report.step == last) throw Error(ErrorCode::io, "enough");
            });
    EXPECT_EQ(error, fmt::format("enough; the state of step {} was saved", last));
  }
  EXPECT_EQ(run(config("run"), posix_files(), StartMode::resume), "no error");
  reads_ahead_ = false;
  expect_same_as_whole("run");
}

// So that memory does not grow with train.accumulate.
TEST_F(FailingRun, micro_batches_are_read_one_after_the_other) {
  FailingFiles files("tokens.bin");
  std::set<int64_t> before_each_op;
  bool is_first_step = true;
  watch_ = [&](Trainer& trainer) {
    trainer.engine().observe([&](const auto&...) {
      if (is_first_step) before_each_op.insert(files.n_reads.load());
    });
  };
  EXPECT_EQ(run(config("run", {"train.steps=2", "train.eval_every=0"}), files, StartMode::fresh,
                [&](const StepReport&) { is_first_step = false; }),
            "no error");
  EXPECT_EQ(before_each_op.size(), 3u);
}

TEST_F(FailingRun, a_full_disk_under_the_metrics_ends_it_with_its_state_saved) {
  for (const int64_t last_good : {1, 3, 5}) {  // an evaluation follows, or the end
    const std::string out = fmt::format("metrics-{}", last_good);
    FailingFiles files("metrics.jsonl");
    const std::string error =
        run(config(out), files, StartMode::fresh,
            [&](const StepReport& report) { files.is_failing = report.step == last_good; });
    EXPECT_EQ(error, fmt::format("[files] cannot write to 'DIR/{}/metrics.jsonl': No space left on "
                                 "device; the state of step {} was saved",
                                 out, last_good + 1));
    EXPECT_EQ(run(config(out), posix_files(), StartMode::resume), "no error");
    expect_same_as_whole(out);
    std::filesystem::remove_all(folder_ / "whole");
  }
}

TEST_F(FailingRun, a_disk_that_takes_neither_says_both) {
  FailingFiles files("run/");
  const std::string error = run(config("run"), files, StartMode::fresh,
                                [&](const StepReport&) { files.is_failing = true; });
  EXPECT_THAT(error, HasSubstr("No space left on device; saving the state of step 2 failed too: "
                               "[checkpoint] step 2 was not saved: "));
  EXPECT_THAT(error, HasSubstr("there is no whole checkpoint"));
}

TEST_F(FailingRun, extras_that_cannot_be_written_are_told_once) {
  for (const std::string part : {"events.out", "telemetry.jsonl"}) {
    FailingFiles files(part);
    const std::string out = "without-" + part.substr(0, 4);
    EXPECT_EQ(run(config(out), files, StartMode::fresh,
                  [&](const StepReport&) { files.is_failing = true; }),
              "no error");
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the run goes on without it: [files] cannot write "
                                                 "to '" +
                                                 (folder_ / (out + "/" + part)))));
    EXPECT_EQ(metrics(folder_ / out).size(), 6u);
  }
}

// It would be met at the first save, after all the work.
TEST_F(FailingRun, a_folder_that_takes_no_checkpoint_ends_it_before_the_first_step) {
  run(config("run", {"train.steps=2"}), posix_files(), StartMode::fresh);
  FailingFiles files("ckpt/");
  files.is_failing = true;
  const std::string error = run(config("run"), files, StartMode::resume,
                                [](const StepReport& report) { ADD_FAILURE() << report.step; });
  EXPECT_THAT(error, HasSubstr("Permission denied"));
  EXPECT_THAT(error, HasSubstr("run/ckpt/"));
  EXPECT_EQ(metrics(folder_ / "run").size(), 2u);
}

TEST_F(FailingRun, a_step_that_is_half_done_is_not_saved) {
  watch_ = [](Trainer& trainer) {
    trainer.engine().observe([n = 0](const auto&...) mutable {
      if (++n == 400) throw Error(ErrorCode::device, "lost");
    });
  };
  const std::string error =
      run(config("run", {"train.accumulate=1"}), posix_files(), StartMode::fresh);
  EXPECT_THAT(error, testing::MatchesRegex("lost; step [0-9]+ was half done: the state was not "
                                           "saved"));
  EXPECT_FALSE(posix_files().exists(folder_ / "run/ckpt"));
}

TEST_F(FailingRun, another_instruction_set_is_a_warning) {
  run(config("run", {"train.steps=2"}), posix_files(), StartMode::fresh);
  Checkpoints checkpoints(posix_files(), folder_ / "run/ckpt");
  EXPECT_EQ(checkpoints.newest()->manifest.machine.at("isa"), "test");
  const RunConfig next = config("run", {"train.steps=3"});
  cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa());
  const Dataset data = open_run_data(posix_files(), next, resolved(ModelSpec{.vocab = 256}));
  std::vector<std::string> warnings;
  TrainHooks hooks;
  hooks.log = Log([&](LogLevel level, const std::string& message) {
    if (level == LogLevel::warning) warnings.push_back(message);
  });
  Trainer(next, data, {posix_files(), *backend.device, *backend.catalogue, "avx2"})
      .run({StartMode::resume, {{"train.steps", "--set"}}}, hooks);
  EXPECT_THAT(warnings,
              ElementsAre(HasSubstr("[resume] the checkpoint was computed on cpu, --isa test, and "
                                    "this process computes on cpu, --isa avx2")));
}

// A head that the model lacks would be dropped from all later checkpoints.
TEST_F(FailingRun, tensors_without_a_place_are_refused) {
  watch_ = [&](Trainer& trainer) {
    Arenas& arenas = trainer.engine().arenas();
    const Layout& layout = trainer.engine().layout();
    std::vector<TensorSource> sources = slot_sources(arenas, layout, InputKind::parameter);
    const std::string four = "four";
    sources.push_back(span_source(tensor_decl("more", Dtype::u8, {4}), as_bytes(four)));
    const std::string path = folder_ / "model.safetensors";
    write_atomically(posix_files(), path,
                     [&](FileWriter& out) { write_safetensors(out, sources); });
    const SafetensorsReader reader = SafetensorsReader::open(posix_files(), path);
    EXPECT_EQ(error_of([&] { restore_slots(arenas, layout, InputKind::parameter, reader); },
                       folder_.path()),
              "[resume] DIR/model.safetensors: expected tensors of this model and optimizer alone, "
              "got 'more'");
  };
  run(config("run", {"train.steps=2"}), posix_files(), StartMode::fresh);
}

TEST_F(FailingRun, a_configuration_that_did_not_change_is_not_written_again) {
  run(config("run", {"train.steps=2"}), posix_files(), StartMode::fresh);
  const std::string path = folder_ / "run/config.yaml";
  const std::string text = posix_files().read_text(path) + "# mine\n";
  folder_.put("run/config.yaml", text);
  EXPECT_EQ(run(config("run", {"train.steps=2"}), posix_files(), StartMode::resume), "no error");
  EXPECT_EQ(posix_files().read_text(path), text);
  EXPECT_EQ(run(config("run", {"train.steps=2", "train.keep=3"}), posix_files(), StartMode::resume),
            "no error");
  EXPECT_THAT(posix_files().read_text(path), HasSubstr("keep: 3"));
}

}  // namespace
}  // namespace octet::train_failing_run_test
