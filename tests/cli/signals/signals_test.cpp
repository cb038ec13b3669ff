// Signals, closed descriptors and readers that do not read: whatever the program is doing, it ends
// soon, says so with its exit code, and loses nothing.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/host_memory.h"
#include "cli/signals/child.h"
#include "cli/train/tiny_run.h"
#include "io/checkpoint.h"

namespace octet::signals_test {
namespace {

using test::Child;
using test::ScratchFolder;
using namespace std::chrono_literals;

// It takes milliseconds; a machine that others keep busy takes longer to let it run.
constexpr double kSoon = 10;

void wait_for(const std::string& file, size_t n_bytes = 1) {
  for (int i = 0; i < 3000; ++i) {
    if (posix_files().exists(file) && posix_files().size(file) >= n_bytes) return;
    std::this_thread::sleep_for(10ms);
  }
}

struct Phase {
  const char* name;
  std::vector<std::string> arguments;
  int64_t n_bytes = 0;  // that the machine must have
};
void PrintTo(const Phase& phase, std::ostream* out) {
  *out << phase.name;
}

class LongPhase : public testing::TestWithParam<Phase> {};

// Before the first step of a run there is nothing to save.
TEST_P(LongPhase, ends_soon_after_each_signal) {
  if (read_host_memory().available_bytes < GetParam().n_bytes)
    GTEST_SKIP() << "takes " << GetParam().n_bytes << " bytes";
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  folder.put("long.txt", test::easy_text(64 << 20));
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    int never_written[2];
    ASSERT_EQ(::pipe(never_written), 0);
    Child child(folder, GetParam().arguments, [&] { ::dup2(never_written[0], 0); });
    std::this_thread::sleep_for(250ms);
    EXPECT_TRUE(child.is_running()) << posix_files().read_text(folder / "err.txt");
    child.signal(number);
    EXPECT_EQ(child.code_within(kSoon), 128 + number);
    const std::string err = posix_files().read_text(folder / "err.txt");
    EXPECT_THAT(err, testing::ContainsRegex("octet: .*\\(SIG[A-Z]+\\)\n$"));
    for (const int end : never_written) ::close(end);
  }
  EXPECT_FALSE(posix_files().exists(folder / "run/ckpt"));
}

const Phase kPhases[] = {
    {"standard_input", {"formats", "encode", "--format", "e4m3"}},
    {"graph_on_standard_input", {"opt", "-"}},
    {"tokens_of_text", {"train", "tiny.yaml", "--set", "data.train=[long.txt]"}},
    {"planning", {"plan", "tiny.yaml", "--set", "model.layers=2000"}},
    {"compiling", {"train", "tiny.yaml", "--set", "model.layers=2000"}},
    {"first_weights",
     {"train", "tiny.yaml", "--set", "model.vocab=2000000", "--set", "model.hidden=128"},
     int64_t{9} << 30},
};

INSTANTIATE_TEST_SUITE_P(all, LongPhase, testing::ValuesIn(kPhases),
                         [](const auto& info) { return std::string(info.param.name); });

std::vector<std::string> endless_run() {
  return {"train", "tiny.yaml", "--set", "train.steps=10000000", "--set", "train.eval_every=0"};
}

TEST(Signals, a_run_whose_messages_nobody_reads_is_saved) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  int unread[2];
  ASSERT_EQ(::pipe(unread), 0);
  ::fcntl(unread[0], F_SETPIPE_SZ, 4096);
  std::vector<std::string> arguments = endless_run();
  arguments.insert(arguments.end(), {"--set", "train.log_every=1"});
  Child child(folder, arguments, [&] { ::dup2(unread[1], 2); });
  // Once the pipe is full the run stands still.
  wait_for(folder / "run/metrics.jsonl");
  std::this_thread::sleep_for(1s);
  child.signal(SIGTERM);
  EXPECT_EQ(child.code_within(kSoon), 128 + SIGTERM);
  EXPECT_TRUE(Checkpoints(posix_files(), folder / "run/ckpt").newest().has_value());
  for (const int end : unread) ::close(end);
}

TEST(Signals, a_second_one_does_not_wait_for_the_state) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  std::vector<std::string> arguments = endless_run();
  // Steps of minutes.
  arguments.insert(arguments.end(), {"--set", "train.accumulate=60000"});
  Child child(folder, arguments);
  wait_for(folder / "err.txt");
  std::this_thread::sleep_for(1500ms);
  child.signal(SIGTERM);
  std::this_thread::sleep_for(200ms);
  // The step takes minutes, and the word comes at once.
  EXPECT_THAT(posix_files().read_text(folder / "err.txt"),
              testing::EndsWith("octet: SIGTERM: saving and ending after this step; a second one "
                                "ends at once\n"));
  child.signal(SIGTERM);
  EXPECT_EQ(child.code_within(kSoon), 128 + SIGTERM);
}

TEST(Signals, a_lost_terminal_ends_no_run_that_was_started_to_outlive_it) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  Child child(folder, endless_run(), [] { ::signal(SIGHUP, SIG_IGN); });  // as nohup does
  wait_for(folder / "run/metrics.jsonl");
  child.signal(SIGHUP);
  std::this_thread::sleep_for(300ms);
  EXPECT_TRUE(child.is_running());
}

class ClosedDescriptors : public testing::TestWithParam<int> {};

TEST_P(ClosedDescriptors, get_nothing_that_belongs_elsewhere) {
  const ScratchFolder folder;
  folder.put("tiny.yaml", test::tiny_yaml(folder));
  Child child(folder, {"train", "tiny.yaml", "--set", "train.log_every=1"}, [] {
    for (int descriptor = 0; descriptor < 3; ++descriptor) {
      if ((GetParam() >> descriptor & 1) != 0) ::close(descriptor);
    }
  });
  EXPECT_EQ(child.code_within(60), 0);
  EXPECT_EQ(test::metrics(folder / "run").size(), 6u);  // throws where a line is no JSON
  for (const char* name : {"run/telemetry.jsonl", "run/config.yaml"}) {
    const std::string text = posix_files().read_text(folder / name);
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("step 1/6"))) << name;
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("val_loss  "))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(all, ClosedDescriptors, testing::Range(1, 8), [](const auto& info) {
  std::string name = "of";
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    if ((info.param >> descriptor & 1) != 0) name += "_" + std::to_string(descriptor);
  }
  return name;
});

}  // namespace
}  // namespace octet::signals_test
