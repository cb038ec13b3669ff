#include "cli/commands.h"

namespace octet {

// The order of `octet --help`.
void add_commands(CLI::App& app, GlobalOptions& options) {
  for (const auto add :
       {add_train_command,    add_plan_command,     add_recipes_command,    add_eval_command,
        add_generate_command, add_serve_command,    add_embed_command,      add_convert_command,
        add_ptq_command,      add_tokenize_command, add_chat_command,       add_data_command,
        add_report_command,   add_demo_command,     add_compare_command,    add_bench_command,
        add_formats_command,  add_opt_command,      add_optim_step_command, add_study_command,
        add_inspect_command,  add_doctor_command,   add_docs_command})
    add(app, options);
}

}  // namespace octet
