// The parts of `octet demo`, which share one device and one folder.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "cli/common.h"
#include "config/load.h"
#include "infer/evaluate.h"
#include "plan/backend.h"

namespace octet {

struct DemoFlags {
  std::string out = "runs/demo";
  std::string text;   // what both recipes are compared on; empty: the demonstration's own
  int64_t steps = 0;  // of each run; 0: the demonstration's own
  bool offline = false;
};

// The files that come with the program, "" where they do not.
struct DemoFiles {
  std::string folder;        // recipes/demo
  std::string fetch_script;  // tools/fetch_model.py
  std::string build;         // where that script keeps models: the program's folder
  std::string program;       // the program as a shell finds it from here
  std::string in_folder(std::string_view name) const { return join_path(folder, name); }
};
// Throws Error{bad_data} where recipes/demo is not there.
DemoFiles find_demo_files();

// A model that talks, and how adapters are trained beside it.
struct DemoModel {
  std::string name, about, folder;
  int64_t rank = 16, steps = 24, batch = 2, seq = 128;
  double lr = 1e-3;
  std::string base = "e4m3";
};
// The 135M model where it lies in the build folder, or where the script fetches it there after
// `on_fetch`; what the script says goes to `log_file`. Nothing where there is no script or it
// fails.
std::optional<DemoModel> fetch_demo_model(Files& files, const DemoFiles& found,
                                          const std::string& log_file,
                                          const std::function<void()>& on_fetch);
DemoModel small_demo_model(const DemoFiles& found);

// Results of the parts, kept in OUT/demo.json: a part that came to its end with the same settings
// is shown again, one that began with them goes on.
class DemoRecord {
 public:
  DemoRecord(Files& files, const std::string& out);
  const OrderedJson* result(const std::string& part, const OrderedJson& settings) const;
  bool has_begun(const std::string& part, const OrderedJson& settings) const;
  void begin(const std::string& part, const OrderedJson& settings);
  void end(const std::string& part, const OrderedJson& settings, OrderedJson result);

 private:
  void write();
  Files& files_;
  std::string path_;
  OrderedJson parts_ = OrderedJson::object();
};

class Demo {
 public:
  Demo(const DemoFlags& flags, const GlobalOptions& options);

  // Lines of the demonstration; none with --json.
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (options.json) return;
    write_line(format, std::forward<Args>(args)...);
    flush_output();
  }
  // Questions and answers: {answers: [{question, answer}], tokens, seconds}.
  OrderedJson talk(const std::string& part, const DemoModel& model, const std::string& path);
  // A run to its end: {steps, seconds, train_loss, val_loss, tokens_per_s, planned_bytes,
  // state_bytes}. Throws ExitStatus where a signal stops it.
  OrderedJson train(const std::string& part, LoadedConfig loaded, bool fits_to_data);
  // The second run's loss on the validation data of the first, row by row.
  OrderedJson compare(const std::string& part, const std::string& first, const std::string& second);
  std::string folder(std::string_view part) const { return join_path(flags.out, part); }
  int64_t steps(int64_t usual) const { return flags.steps > 0 ? flags.steps : usual; }

  const DemoFlags& flags;
  const GlobalOptions& options;
  Files& files;
  DemoFiles found;
  OrderedJson settings;  // of the parts to come

 private:
  const Backend& backend();
  DemoRecord record_;
  std::optional<Backend> backend_;
};

}  // namespace octet
