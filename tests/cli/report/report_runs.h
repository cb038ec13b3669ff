// Runs written by hand, and the page that octet report makes of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program_run.h"
#include "config/load.h"
#include "config/report.h"
#include "unit/base/scratch_folder.h"

namespace octet::test {

inline Outcome program(const ScratchFolder& folder, const std::string& arguments) {
  // A page that never ends must not take the machine's memory with it.
  return run_shell(folder,
                   "ulimit -v 4000000; timeout 60 " OCTET_PROGRAM " " + arguments + " </dev/null");
}

inline Outcome report(const ScratchFolder& folder, const std::string& arguments) {
  return program(folder, "report " + arguments + " --out " + (folder / "page.html"));
}

inline std::string page(const ScratchFolder& folder) {
  return posix_files().read_text(folder / "page.html");
}

// A run of `n` steps; `line` may change a step's object.
template <typename Change>
std::string write_run(const ScratchFolder& folder, const std::string& name, int n, Change change) {
  std::string text;
  for (int step = 1; step <= n; ++step) {
    nlohmann::json line = {
        {"step", step},        {"loss", 5.0 / step},     {"grad_norm", 1.0}, {"lr", 1e-3},
        {"tokens", 64 * step}, {"tokens_per_s", 1000.0}, {"time_ms", 64.0},  {"mem_bytes", 3 << 20},
        {"skipped", 0},        {"val_loss", 4.0 / step}};
    change(line);
    text += line.dump() + "\n";
  }
  folder.put(name + "/metrics.jsonl", text);
  return "'" + (folder / name) + "'";
}

inline std::string write_run(const ScratchFolder& folder, const std::string& name, int n = 30) {
  return write_run(folder, name, n, [](nlohmann::json&) {});
}

inline void write_config(const ScratchFolder& folder, const std::string& run,
                         const std::vector<std::string>& sets) {
  folder.put(run + "/config.yaml", resolved_yaml(parse_config("{}", "none", sets).config));
}

// Data that the page's script reads; the text ends where a browser takes it to end.
inline nlohmann::json script_data(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script", from) - from));
}

}  // namespace octet::test
