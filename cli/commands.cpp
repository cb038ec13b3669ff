#include "cli/commands.h"

#include "cli/docs_command.h"
#include "cli/doctor_command.h"
#include "cli/formats_command.h"

namespace octet {

// The order of `octet --help`.
void add_commands(CLI::App& app, GlobalOptions& options) {
  add_formats_command(app, options);
  add_doctor_command(app, options);
  add_docs_command(app, options);
}

}  // namespace octet
