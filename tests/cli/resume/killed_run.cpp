#include "cli/resume/killed_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "base/philox.h"
#include "ir/attr_enums.h"
#include "optim/state_format.h"
#include "passes/precision/recipe.h"

namespace octet::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kMasters[] = {"fp32", "bf16_remainder", "bf16_sr"};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// 511 tokens: windows of 24 leave a rest, and a pass ends within the run.
std::string shard() {
  const RandomStream random{.name = name_hash("resumed shard")};
  std::string bytes;
  for (uint64_t i = 0; i < 511; ++i) {
    bytes += static_cast<char>('a' + random.bits(i) % 7);
    bytes += '\0';
  }
  return bytes;
}

std::string config_text(const Settings& settings, const KillPlan& plan) {
  return fmt::format(
      "model: {{kind: llama, hidden: 32, layers: 1, heads: 2, ffn: 40, vocab: 256, seq: 24}}\n"
      "recipe: {}\n"
      "optim: {{kind: {}, lr: 5.0e-3, warmup: 2, state_m: {}, state_v: {}, master: {}}}\n"
      "data: {{train: [tokens.bin], val_fraction: 0}}\n"
      "train: {{steps: {}, batch: 2, accumulate: 3, save_every: 1, keep: 2, eval_every: 0, "
      "save_buffer: 16KiB}}\n"
      "parallel: {{ranks: {}}}\n",
      settings.recipe, settings.rule, settings.state, settings.state, settings.master, plan.steps,
      plan.ranks);
}

class TrainChild {
 public:
  // Runs in the folder; standard error goes to err.txt.
  TrainChild(const ScratchFolder& folder, const std::string& out) : pid_(::fork()) {
    if (pid_ != 0) return;
    const int err = ::open((folder / "err.txt").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int null = ::open("/dev/null", O_RDWR);
    if (::chdir(folder.path().c_str()) != 0) ::_exit(126);
    ::dup2(null, 0), ::dup2(null, 1), ::dup2(err, 2);
    const std::string set = "out=" + out;
    ::execl(OCTET_PROGRAM, "octet", "train", "a.yaml", "--quiet", "--resume", "--threads", "2",
            "--set", set.c_str(), nullptr);
    ::_exit(127);
  }
  ~TrainChild() {
    if (!is_done_) kill();
  }
  TrainChild(const TrainChild&) = delete;
  TrainChild& operator=(const TrainChild&) = delete;

  bool is_done() {
    if (!is_done_) is_done_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return is_done_;
  }
  int wait() {
    if (!is_done_) ::waitpid(pid_, &status_, 0);
    is_done_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }
  // True where it was still alive.
  bool kill() { return send(SIGKILL); }
  bool send(int signal) {
    if (is_done()) return false;
    ::kill(pid_, signal);
    wait();
    return true;
  }

 private:
  pid_t pid_;
  int status_ = 0;
  bool is_done_ = false;
};

// Remainders extend BF16 weights.
bool is_offered(const Recipe& recipe, std::string_view master) {
  return recipe.compute != Dtype::fp16 || master != "bf16_remainder";
}

// When the next kill comes.
enum class Moment { any_time, after_a_line, inside_a_save };

class Killer {
 public:
  Killer(const ScratchFolder& folder, uint32_t seed, double step_seconds)
      : run_(folder / "killed"), random_(seed), step_seconds_(step_seconds) {}

  // Waits for the moment or for the child's end.
  void wait_for(Moment moment, TrainChild& child) {
    const auto start = Clock::now();
    const uint64_t lines = n_bytes();
    const auto is_due = [&] {
      if (moment == Moment::after_a_line) return n_bytes() > lines;
      return moment == Moment::inside_a_save ? is_saving() : true;
    };
    while (!child.is_done() && !is_due() && seconds_since(start) < 30) pause(5e-5);
    // Each of a save's many operations must be hit at times: 3 ms cover some of them.
    const double longest = moment == Moment::any_time        ? 4 * step_seconds_ + 0.05
                           : moment == Moment::inside_a_save ? 3e-3
                                                             : step_seconds_;
    const double delay = std::uniform_real_distribution<>(0, longest)(random_);
    const auto due = Clock::now();
    while (!child.is_done() && seconds_since(due) < delay) pause(5e-5);
  }

 private:
  static void pause(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  uint64_t n_bytes() const {
    const std::string file = join_path(run_, "metrics.jsonl");
    return posix_files().exists(file) ? posix_files().size(file) : 0;
  }
  bool is_saving() const {
    const std::string folder = join_path(run_, "ckpt");
    if (!posix_files().exists(folder)) return false;
    for (const DirectoryEntry& entry : posix_files().list(folder)) {
      if (entry.name.ends_with(".tmp")) return true;
    }
    return false;
  }

  std::string run_;
  std::mt19937 random_;
  double step_seconds_;
};

std::vector<std::string> recorded_losses(const std::string& run) {
  std::istringstream text(posix_files().read_text(join_path(run, "metrics.jsonl")));
  std::vector<std::string> bits;
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    bits.push_back(
        fmt::format("{} {}", json.at("step").get<int>(), json.at("loss_bits").get<std::string>()));
  }
  return bits;
}

void expect_same(const ScratchFolder& folder, int steps) {
  EXPECT_EQ(recorded_losses(folder / "killed"), recorded_losses(folder / "whole"));
  EXPECT_EQ(recorded_losses(folder / "whole").size(), static_cast<size_t>(steps));
  for (const char* name : {"model.safetensors", "optim.safetensors", "manifest.json", "COMPLETE"}) {
    const std::string file = fmt::format("/ckpt/step-{:06}/{}", steps, name);
    EXPECT_TRUE(posix_files().read_bytes((folder / "killed") + file) ==
                posix_files().read_bytes((folder / "whole") + file))
        << name;
  }
}

// A disk of its own for the run, of some KiB; grows by remounting.
class SmallDisk {
 public:
  explicit SmallDisk(std::string path) : path_(std::move(path)) {
    posix_files().create_directories(path_);
  }
  ~SmallDisk() {
    if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool resize(int64_t kib) {
    const std::string size = fmt::format("size={}k", kib);
    const unsigned long flags = is_mounted_ ? MS_REMOUNT : 0;
    const bool done = ::mount("none", path_.c_str(), "tmpfs", flags, size.c_str()) == 0;
    is_mounted_ = is_mounted_ || done;
    return done;
  }

 private:
  std::string path_;
  bool is_mounted_ = false;
};

// True where a living process was met.
bool disturb(Disturbance how, const ScratchFolder& folder, TrainChild& child, uint32_t index) {
  switch (how) {
    case Disturbance::kill:
      return child.kill();
    case Disturbance::signal: {
      const int signal = index % 2 == 0 ? SIGTERM : SIGINT;
      if (!child.send(signal)) return false;
      const int code = child.wait();  // -1: it came before a handler was there
      EXPECT_TRUE(code == 128 + signal || code == 0 || code == -1) << code;
      return true;
    }
    case Disturbance::rival: {
      TrainChild rival(folder, "killed");
      const auto start = Clock::now();
      while (!rival.is_done() && seconds_since(start) < 0.3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const bool met = index % 2 == 0 ? child.kill() : rival.kill() || child.kill();
      child.kill();
      rival.kill();
      return met;
    }
    case Disturbance::full_disk:  // a minute at most: it fails by itself, or ends
      while (!child.is_done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return child.wait() != 0;
  }
  return false;
}

}  // namespace

std::string Settings::name() const {
  std::string text = recipe + "_" + state + "_" + master + (rule == "adamw" ? "" : "_" + rule);
  for (char& ch : text) {
    if (std::isalnum(static_cast<unsigned char>(ch)) == 0) ch = ch == '+' ? 'x' : '_';
  }
  return text;
}

std::vector<Settings> all_settings() {
  std::vector<Settings> all;
  for (const Recipe* recipe : all_recipes()) {
    for (const StateFormatRow& state : state_formats()) {
      for (const std::string_view master : kMasters) {
        if (!is_offered(*recipe, master)) continue;
        all.push_back({std::string(recipe->name), std::string(state.name), std::string(master)});
      }
    }
  }
  return all;
}

std::vector<Settings> some_settings() {
  std::vector<Settings> some;
  const auto recipes = all_recipes();
  for (const StateFormatRow& state : state_formats()) {
    const size_t i = some.size();
    const Recipe& recipe = *recipes[i % recipes.size()];
    const std::string_view master = kMasters[(i + i / 3) % std::size(kMasters)];
    some.push_back({std::string(recipe.name), std::string(state.name),
                    std::string(is_offered(recipe, master) ? master : kMasters[0])});
  }
  return some;
}

std::vector<Settings> settings_of_rules() {
  std::vector<Settings> all;
  for (int i = 1; i < enum_count(UpdateKind{}); ++i) {
    for (const char* state : {"f32", "e4m3", "e4m3_sr"})
      all.push_back(
          {"bf16", state, "bf16_remainder", std::string(enum_name(static_cast<UpdateKind>(i)))});
  }
  return all;
}

bool can_mount() {
  const ScratchFolder folder;
  return SmallDisk(folder / "disk").resize(64);
}

int expect_same_after_kills(const Settings& settings, const KillPlan& plan) {
  SCOPED_TRACE(settings.name());
  const ScratchFolder folder;
  folder.put("tokens.bin", shard());
  folder.put("a.yaml", config_text(settings, plan));
  const auto start = Clock::now();
  const int code = TrainChild(folder, "whole").wait();
  EXPECT_EQ(code, 0) << posix_files().read_text(folder / "err.txt");
  if (code != 0) return 0;
  Killer killer(folder, plan.seed, seconds_since(start) / plan.steps);
  const bool is_small = plan.disturbance == Disturbance::full_disk;
  std::optional<SmallDisk> disk;
  if (is_small) {
    disk.emplace(folder / "killed");
    EXPECT_TRUE(disk->resize(8));
  }
  int n_kills = 0;
  for (uint32_t i = 0; i < plan.kills; ++i) {
    TrainChild child(folder, "killed");
    if (!is_small) killer.wait_for(static_cast<Moment>((i + plan.seed) % 3), child);
    const bool was_met = disturb(plan.disturbance, folder, child, i);
    // Each time a little more room: an odd share of a checkpoint.
    if (disk) disk->resize(8 + 13 * (i + 1));
    if (!was_met) break;
    ++n_kills;
  }
  if (disk) disk->resize(1 << 20);
  EXPECT_EQ(TrainChild(folder, "killed").wait(), 0) << posix_files().read_text(folder / "err.txt");
  if (!testing::Test::HasFailure()) expect_same(folder, plan.steps);
  return n_kills;
}

}  // namespace octet::test
