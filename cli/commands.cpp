#include "cli/commands.h"

#include "cli/bench_command.h"
#include "cli/chat_command.h"
#include "cli/compare_command.h"
#include "cli/convert_command.h"
#include "cli/data_command.h"
#include "cli/docs_command.h"
#include "cli/doctor_command.h"
#include "cli/embed_command.h"
#include "cli/eval_command.h"
#include "cli/formats_command.h"
#include "cli/generate_command.h"
#include "cli/inspect_command.h"
#include "cli/opt_command.h"
#include "cli/optim_step_command.h"
#include "cli/plan_command.h"
#include "cli/ptq_command.h"
#include "cli/report_command.h"
#include "cli/study_command.h"
#include "cli/tokenize_command.h"
#include "cli/train_command.h"

namespace octet {

// The order of `octet --help`.
void add_commands(CLI::App& app, GlobalOptions& options) {
  add_train_command(app, options);
  add_plan_command(app, options);
  add_eval_command(app, options);
  add_generate_command(app, options);
  add_embed_command(app, options);
  add_convert_command(app, options);
  add_ptq_command(app, options);
  add_tokenize_command(app, options);
  add_chat_command(app, options);
  add_data_command(app, options);
  add_report_command(app, options);
  add_compare_command(app, options);
  add_bench_command(app, options);
  add_formats_command(app, options);
  add_opt_command(app, options);
  add_optim_step_command(app, options);
  add_study_command(app, options);
  add_inspect_command(app, options);
  add_doctor_command(app, options);
  add_docs_command(app, options);
}

}  // namespace octet
