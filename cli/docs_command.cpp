#include "cli/commands.h"

#include <memory>
#include <string>

#include "cli/command_tree.h"
#include "cli/docs_pages.h"
#include "config/report.h"
#include "config/table.h"
#include "nn/list.h"
#include "nn/model.h"
#include "nn/models_page.h"

namespace octet {
namespace {

OrderedJson keys_of(const ModelDef& model) {
  OrderedJson keys = OrderedJson::array();
  for (const HfKey& key : hf_keys_of(model))
    keys.push_back({{"key", key.key}, {"field", key.field}});
  return keys;
}

OrderedJson configuration_json() {
  OrderedJson keys = OrderedJson::array();
  const auto defaults = config_values(RunConfig{});
  for (size_t i = 0; const ConfigRow& row : config_rows()) {
    keys.push_back({{"key", row.path},
                    {"default", defaults[i++].second},
                    {"accepts", expected_text(row)},
                    {"unit", row.unit},
                    {"on_resume", on_resume_text(row.on_resume)},
                    {"meaning", row.help}});
  }
  return keys;
}

OrderedJson models_json() {
  OrderedJson all = OrderedJson::array();
  for (const ModelDef* model : all_models()) {
    all.push_back({{"model_type", model->name},
                   {"class", model->architecture},
                   {"positions", positions_text(*model)},
                   {"mlp", mlp_text(*model)},
                   {"keys", keys_of(*model)}});
  }
  return all;
}

// Texts that shells and `man` read, made from the whole command line.
void add_pages_of_commands(CLI::App& app, CLI::App& docs) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion = docs.add_subcommand("completion", "what completes commands in a shell");
  completion->add_option("shell", *shell, "the shell")->required()->check(one_of({"bash", "zsh"}));
  completion->callback(
      [shell, &app] { write_out(*shell == "bash" ? bash_completion(app) : zsh_completion(app)); });
  docs.add_subcommand("man", "the manual page of all commands, as `man` reads it")
      ->callback([&app] { write_out(man_page(app)); });
}

}  // namespace

void add_docs_command(CLI::App& app, GlobalOptions& options) {
  CLI::App* docs =
      app.add_subcommand("docs", "print a reference page made from the program's tables");
  docs->require_subcommand(1);
  const auto add_page = [&](const char* name, const char* what, DocsPage (*make)()) {
    docs->add_subcommand(name, what)->callback([make, &options] {
      const DocsPage page = make();
      write_out(options.json ? json_text(page.json) : page.markdown);
    });
  };
  add_page("configuration", "every key of a run file, as docs/configuration.md", [] {
    return DocsPage{configuration_markdown(), configuration_json()};
  });
  add_page("models", "architectures and keys of config.json, as docs/models.md", [] {
    return DocsPage{models_markdown(), models_json()};
  });
  add_page("scale-rules", "the scale rule of every op, as in docs/scalify.md", scale_rules_page);
  add_page("types", "which quantized types operands may have, as in docs/numerics.md", types_page);
  add_page("kernels", "the rows of kernels of both back ends, as docs/kernels.md", kernels_page);
  add_page("keys", "every key of a run file, for a terminal", [] {
    return DocsPage{configuration_help(), configuration_json()};
  });
  add_pages_of_commands(app, *docs);
}

}  // namespace octet
