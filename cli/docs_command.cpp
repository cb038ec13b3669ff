#include "cli/docs_command.h"

#include "cli/scale_rules_page.h"
#include "config/report.h"
#include "nn/models_page.h"

namespace octet {

void add_docs_command(CLI::App& app, GlobalOptions& options) {
  CLI::App* docs =
      app.add_subcommand("docs", "print a reference page made from the program's tables");
  docs->require_subcommand(1);
  docs->add_subcommand("configuration", "every key of a run file, as docs/configuration.md")
      ->callback([] { write_out(configuration_markdown()); });
  docs->add_subcommand("models", "architectures and keys of config.json, as docs/models.md")
      ->callback([] { write_out(models_markdown()); });
  docs->add_subcommand("scale-rules", "the scale rule of every op, as in docs/scalify.md")
      ->callback([] { write_out(scale_rules_markdown()); });
  docs->add_subcommand("keys", "every key of a run file, for a terminal")->callback([] {
    write_out(configuration_help());
  });
}

}  // namespace octet
