// The commands, each in a source of its name (train_command.cpp).
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_commands(CLI::App& app, GlobalOptions& options);

// octet train CONFIG [--resume]: a run from a configuration file.
void add_train_command(CLI::App& app, GlobalOptions& options);
// octet plan CONFIG: what a run will do and take, without running it.
void add_plan_command(CLI::App& app, GlobalOptions& options);
// octet recipes: the configurations that come with the program.
void add_recipes_command(CLI::App& app, GlobalOptions& options);
// octet eval --model DIR|RUN --tasks ...: what a model makes of text.
void add_eval_command(CLI::App& app, GlobalOptions& options);
// octet generate --model DIR|RUN --prompt TEXT: text from a model.
void add_generate_command(CLI::App& app, GlobalOptions& options);
// octet serve --model DIR|RUN: a model behind an HTTP API.
void add_serve_command(CLI::App& app, GlobalOptions& options);
// octet embed: texts as vectors.
void add_embed_command(CLI::App& app, GlobalOptions& options);
// octet convert FROM TO: a run or a model folder as transformers and inference servers load it.
void add_convert_command(CLI::App& app, GlobalOptions& options);
// octet ptq: post-training quantization of a model.
void add_ptq_command(CLI::App& app, GlobalOptions& options);
// octet tokenize: text to token ids and back, and text to shards.
void add_tokenize_command(CLI::App& app, GlobalOptions& options);
// octet chat: what a model's chat template makes of a conversation.
void add_chat_command(CLI::App& app, GlobalOptions& options);
// octet data inspect: what a run would be trained on.
void add_data_command(CLI::App& app, GlobalOptions& options);
// octet report RUN...: curves, results and differences of runs as one page.
void add_report_command(CLI::App& app, GlobalOptions& options);
// octet demo: the main job of `make train`; a model talks, is fine-tuned in 8 bits and talks again,
// and bf16 beside coat.
void add_demo_command(CLI::App& app, GlobalOptions& options);
// octet compare: every recipe on one small model and the machine's own text.
void add_compare_command(CLI::App& app, GlobalOptions& options);
// octet bench [layer|step|kernels|optimizer] [CONFIG]: what this machine reaches, with what it is
// measured against.
void add_bench_command(CLI::App& app, GlobalOptions& options);
// octet formats list | table | encode | decode | quantize | dequantize: the number formats on raw
// little-endian standard input and output.
void add_formats_command(CLI::App& app, GlobalOptions& options);
// octet opt FILE.ir --passes a,b: graph text in, graph text out.
void add_opt_command(CLI::App& app, GlobalOptions& options);
// octet optim-step: AdamW updates of one tensor from raw f32 files, to look at optimizer states.
void add_optim_step_command(CLI::App& app, GlobalOptions& options);
// octet study states RUN: what storing a run's moments in eight bits would cost.
void add_study_command(CLI::App& app, GlobalOptions& options);
// octet inspect RUN|FILE: what a checkpoint or a file of tensors holds.
void add_inspect_command(CLI::App& app, GlobalOptions& options);
// octet doctor: what this machine offers, what is missing, and the command that would install it.
void add_doctor_command(CLI::App& app, GlobalOptions& options);
// octet docs: reference pages made from the program's own tables.
void add_docs_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
