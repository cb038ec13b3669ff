#include "cli/docs_command.h"

#include <string>

#include "cli/docs_json.h"
#include "cli/kernels_page.h"
#include "cli/scale_rules_page.h"
#include "cli/types_page.h"
#include "config/report.h"
#include "nn/models_page.h"

namespace octet {

void add_docs_command(CLI::App& app, GlobalOptions& options) {
  CLI::App* docs =
      app.add_subcommand("docs", "print a reference page made from the program's tables");
  docs->require_subcommand(1);
  const auto add_page = [&](const char* name, const char* what, std::string (*text)(),
                            std::string (*json)()) {
    docs->add_subcommand(name, what)->callback([text, json, &options] {
      write_out(options.json ? json() : text());
    });
  };
  add_page("configuration", "every key of a run file, as docs/configuration.md",
           configuration_markdown, configuration_json);
  add_page("models", "architectures and keys of config.json, as docs/models.md", models_markdown,
           models_json);
  add_page("scale-rules", "the scale rule of every op, as in docs/scalify.md", scale_rules_markdown,
           scale_rules_json);
  add_page("types", "which quantized types operands may have, as in docs/numerics.md",
           quantized_types_markdown, quantized_types_json);
  add_page("kernels", "the rows of kernels of both back ends, as docs/kernels.md", kernels_markdown,
           kernels_json);
  add_page("keys", "every key of a run file, for a terminal", configuration_help,
           configuration_json);
}

}  // namespace octet
