#include "config/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/table.h"
#include "config/value.h"

namespace octet {
namespace {

std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (const char ch : text) {
    if (ch == '|') cell += '\\';
    cell += ch;
  }
  return cell;
}

bool is_in_section(const ConfigRow& row, const ConfigSection& section) {
  return row.path.substr(0, row.path.find('.')) == section.name;
}

std::string default_text(const ConfigRow& row) {
  const std::string text = value_text(row, RunConfig{});
  return text == "\"\"" ? "(empty)" : text;
}

constexpr std::string_view kIntroduction =
    R"(# Configuration

A run is described by one YAML file. This page is made from the table that the parser reads
(`src/config/table.cpp`); `octet docs configuration` prints it, and a test compares.

- A key may be written in the file, or given on the command line as `--set a.b=c`, with the value in
  YAML's flow style: `--set 'data.train=[a.txt, b]'`. The last one wins.
- Unknown keys, duplicate keys, tags, numbers such as 020, wrong types and values out of range are
  errors: one line with file, line, key, what was expected and what came. Unknown keys name the
  nearest known one.
- The file may be a pipe or `/dev/stdin`; one that turns out to be empty is an error.
- `auto` and some zeros stand for a value that depends on others; the resolved configuration,
  stored as `config.yaml` in the run's folder, shows what they became.
- Numbers of bytes take the suffixes KiB, MiB, GiB and TiB.
- *on resume*: what `octet train --resume` allows against the configuration that the checkpoint
  records. `as recorded`: no change, since the key decides what weights and states mean. `by --set`:
  a change where the command line names the key, which the log then tells; so a configuration file
  that was edited, or a `--set` of the first command that was forgotten, is an error and not another
  run. `same product`: `train.batch` and `train.accumulate` may change together where a step reads
  as many sequences as before. `free`: not compared; of the data, the tokens themselves are. A
  default warm-up, or one fitted into fewer steps, stays as it was when `train.steps` changes.

```yaml
model:  {kind: llama, hidden: 512, layers: 8, heads: 8, ffn: 1408, vocab: 256, seq: 256}
recipe: {base: coat, override: {"layers.0.*": bf16, "*.down_proj": {dy: e4m3}}}
optim:  {lr: 1.0e-3, warmup: 50}
data:   {train: [text], tokenizer: bytes}
train:  {steps: 1000, batch: 8}
out: runs/example
```
)";

}  // namespace

std::string resolved_yaml(const RunConfig& config) {
  std::string out;
  std::string_view open;  // the section that the lines before belong to
  for (const ConfigRow& row : config_rows()) {
    const bool is_of_folder = is_shape_key(row.path) && !is_of_new_head(row.path, config);
    if (!config.model.path.empty() && is_of_folder) continue;
    const size_t dot = row.path.rfind('.');
    const std::string_view section = dot == std::string_view::npos ? "" : row.path.substr(0, dot);
    const auto depth = static_cast<size_t>(std::ranges::count(section, '.'));
    if (section != open && !section.empty()) {
      out += fmt::format("{:{}}{}:\n", "", 2 * depth, section.substr(section.rfind('.') + 1));
    }
    open = section;
    const size_t indent = section.empty() ? 0 : 2 * (depth + 1);
    out +=
        fmt::format("{:{}}{}: {}\n", "", indent, row.path.substr(dot + 1), value_text(row, config));
  }
  return out;
}

ConfigValues config_values(const RunConfig& config) {
  ConfigValues values;
  for (const ConfigRow& row : config_rows()) values.emplace_back(row.path, value_text(row, config));
  return values;
}

std::string configuration_markdown() {
  std::string out(kIntroduction);
  for (const ConfigSection& section : config_sections()) {
    out += fmt::format("\n## {}\n\n{}\n\n", section.name, section.help);
    out +=
        "| key | default | accepts | unit | on resume | meaning |\n"
        "| --- | --- | --- | --- | --- | --- |\n";
    for (const ConfigRow& row : config_rows()) {
      if (!is_in_section(row, section)) continue;
      out += fmt::format("| `{}` | `{}` | {} | {} | {} | {} |\n", row.path, default_text(row),
                         markdown_cell(expected_text(row)), row.unit, on_resume_text(row.on_resume),
                         markdown_cell(row.help));
    }
  }
  return out;
}

std::string configuration_help() {
  std::string out;
  for (const ConfigSection& section : config_sections()) {
    out += fmt::format("{}\n", section.help);
    for (const ConfigRow& row : config_rows()) {
      if (!is_in_section(row, section)) continue;
      const std::string unit = row.unit.empty() ? "" : fmt::format(" {}", row.unit);
      out += fmt::format("  {} = {}{}: {} ({})\n", row.path, default_text(row), unit, row.help,
                         expected_text(row));
    }
    out += '\n';
  }
  return out;
}

}  // namespace octet
