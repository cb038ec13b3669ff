#include "cli/commands.h"

#if __has_include("cli/train_command.h")
#include "cli/train_command.h"
#endif
#if __has_include("cli/eval_command.h")
#include "cli/eval_command.h"
#endif
#if __has_include("cli/generate_command.h")
#include "cli/generate_command.h"
#endif
#if __has_include("cli/compare_command.h")
#include "cli/compare_command.h"
#endif
#if __has_include("cli/plan_command.h")
#include "cli/plan_command.h"
#endif
#if __has_include("cli/formats_command.h")
#include "cli/formats_command.h"
#endif
#if __has_include("cli/opt_command.h")
#include "cli/opt_command.h"
#endif
#if __has_include("cli/optim_step_command.h")
#include "cli/optim_step_command.h"
#endif
#if __has_include("cli/inspect_command.h")
#include "cli/inspect_command.h"
#endif
#if __has_include("cli/report_command.h")
#include "cli/report_command.h"
#endif
#if __has_include("cli/bench_command.h")
#include "cli/bench_command.h"
#endif
#if __has_include("cli/doctor_command.h")
#include "cli/doctor_command.h"
#endif
#if __has_include("cli/docs_command.h")
#include "cli/docs_command.h"
#endif

namespace octet {

void add_commands(CLI::App& app, GlobalOptions& options) {
#if __has_include("cli/train_command.h")
  add_train_command(app, options);
#endif
#if __has_include("cli/eval_command.h")
  add_eval_command(app, options);
#endif
#if __has_include("cli/generate_command.h")
  add_generate_command(app, options);
#endif
#if __has_include("cli/compare_command.h")
  add_compare_command(app, options);
#endif
#if __has_include("cli/plan_command.h")
  add_plan_command(app, options);
#endif
#if __has_include("cli/formats_command.h")
  add_formats_command(app, options);
#endif
#if __has_include("cli/opt_command.h")
  add_opt_command(app, options);
#endif
#if __has_include("cli/optim_step_command.h")
  add_optim_step_command(app, options);
#endif
#if __has_include("cli/inspect_command.h")
  add_inspect_command(app, options);
#endif
#if __has_include("cli/report_command.h")
  add_report_command(app, options);
#endif
#if __has_include("cli/bench_command.h")
  add_bench_command(app, options);
#endif
#if __has_include("cli/doctor_command.h")
  add_doctor_command(app, options);
#endif
#if __has_include("cli/docs_command.h")
  add_docs_command(app, options);
#endif
}

}  // namespace octet
