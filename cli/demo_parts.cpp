#include <algorithm>

#include "cli/backend.h"
#include "cli/demo.h"
#include "cli/eval_text.h"
#include "cli/generate_setup.h"
#include "cli/generation_speed.h"
#include "cli/progress.h"
#include "cli/report_data.h"
#include "cli/signals.h"
#include "infer/model_source.h"
#include "library/open_backend.h"
#include "train/open_run.h"
#include "train/run.h"

namespace octet {
namespace {

constexpr std::string_view kDemoMaker = "demo";
constexpr int64_t kAnswerTokens = 32, kDemoLines = 4;  // of an answer; of a run, behind the first
// None of them is in recipes/demo/style.jsonl.
constexpr const char* kQuestions[] = {"What is the capital of Italy?",
                                      "What is the opposite of hot?", "How many legs has a dog?"};

// An answer is shown on one line, whatever it holds.
std::string on_one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

// A bar where a terminal is, else the first step and a few more.
void show_steps(const Demo& demo, Progress& progress, TrainHooks& hooks) {
  hooks = progress.hooks();
  hooks.log = Log([log = hooks.log](LogLevel level, const std::string& message) {
    if (level != LogLevel::info) log.write(level, message);
  });
  if (hooks.on_step) return;
  hooks.on_step = [&demo](const StepReport& report) {
    const int64_t every = std::max<int64_t>(1, (report.steps + kDemoLines - 1) / kDemoLines);
    if (report.step != 1 && report.step % every != 0 && report.step != report.steps) return;
    const std::string val =
        report.val_loss ? fmt::format("  validation loss {:.4f}", *report.val_loss) : "";
    demo.say("  step {}/{}  loss {:.4f}  {:.0f} tokens/s{}", report.step, report.steps, report.loss,
             report.tokens_per_s, val);
  };
}

// Figures of all steps in the run's folder, also of those before an interruption.
OrderedJson figures_of(Files& files, const std::string& run) {
  const Log quiet;
  const RunData data = RunReader(files, run, quiet).data();
  const RunSummary summary = summarize(data);
  double time_ms = 0;
  for (const StepReport& step : data.steps) time_ms += step.time_ms;
  return {{"steps", summary.n_steps},
          {"seconds", time_ms / 1000},
          {"train_loss", summary.train_loss},
          {"val_loss", summary.val_loss},
          {"tokens_per_s", summary.tokens_per_s},
          {"planned_bytes", summary.mem_bytes},
          {"state_bytes", data.state_bytes.value_or(0)}};
}

// The talk as it was when the model wrote it.
void show_talk(const Demo& demo, const OrderedJson& talk) {
  for (const OrderedJson& answer : talk["answers"]) {
    demo.say("  > {}\n  {}", answer["question"].get<std::string>(),
             on_one_line(answer["answer"].get<std::string>()));
  }
}

void show_speed(const Demo& demo, const OrderedJson& talk) {
  const auto n = talk["tokens"].get<int64_t>();
  demo.say("  ({} tokens, {:.1f} tokens/s)", n,
           static_cast<double>(n) / talk["seconds"].get<double>());
}

}  // namespace

Demo::Demo(const DemoFlags& demo_flags, const GlobalOptions& global_options)
    : flags(demo_flags),
      options(global_options),
      files(posix_files()),
      found(find_demo_files()),
      record_(files, demo_flags.out) {}

const Backend& Demo::backend() {
  if (!backend_) backend_ = open_backend(options);
  return *backend_;
}

OrderedJson Demo::talk(const std::string& part, const DemoModel& model, const std::string& path) {
  if (const OrderedJson* kept = record_.result(part, settings)) {
    show_talk(*this, *kept);
    show_speed(*this, *kept);
    return *kept;
  }
  GenerateFlags how;
  how.model = path;
  how.recipe = "bf16";
  how.max_tokens = kAnswerTokens;
  GenerateSetup setup = generate_setup(how, options);
  const ChatPrompts& chat = setup.chat_prompts("auto");
  const auto text_model =
      make_text_model(setup.source, {.capacity = std::min(setup.context, 2 * model.seq)},
                      text_machine(backend(), make_log(options)));
  GenerationSpeed speed;
  OrderedJson answers = OrderedJson::array();
  if (!options.json) {
    setup.options.on_text = [](size_t, std::string_view text) {
      write_out(on_one_line(text));
      flush_output();
    };
  }
  for (const char* question : kQuestions) {
    const OrderedJson messages = {{{"role", "user"}, {"content", question}}};
    const Prompt prompt{.tokens = chat.tokens(chat.render({{"messages", messages}}))};
    say("  > {}", question);
    if (!options.json) write_out("  ");
    speed.time([&] {
      const Completion answer =
          generate(*text_model, *setup.tokenizer, {prompt}, setup.options).front();
      answers.push_back({{"question", question}, {"answer", answer.text}});
      return std::ssize(answer.tokens);
    });
    say("");
  }
  OrderedJson result = {
      {"answers", answers}, {"tokens", speed.n_tokens()}, {"seconds", speed.seconds()}};
  record_.end(part, settings, result);
  show_speed(*this, result);
  return result;
}

OrderedJson Demo::train(const std::string& part, LoadedConfig loaded, bool fits_to_data) {
  take_tokenizer_of_model(files, loaded);
  const std::string run = loaded.config.out;
  if (const OrderedJson* kept = record_.result(part, settings)) {
    say("  done before: {} steps, validation loss {:.4f}", (*kept)["steps"].get<int64_t>(),
        (*kept)["val_loss"].get<double>());
    return *kept;
  }
  // A run of other settings gives way where the demonstration made it.
  StartMode mode = StartMode::fresh;
  if (files.exists(run) && maker_of_run(files, run) == kDemoMaker)
    mode = record_.has_begun(part, settings) ? StartMode::resume : StartMode::overwrite;
  check_run_folder(files, run, mode);
  record_.begin(part, settings);
  Progress progress(options, "  ");
  TrainHooks hooks;
  show_steps(*this, progress, hooks);
  hooks.maker = kDemoMaker;
  hooks.stop = &stop_wish();
  const Log quiet;
  if (mode == StartMode::resume) keep_what_resumes(files, loaded, quiet);
  const OpenRun opened = open_run(files, std::move(loaded),
                                  {.data = {.log = quiet, .threads = options.threads},
                                   .fits_to_data = fits_to_data,
                                   .resumes = mode == StartMode::resume});
  const Backend& machine = backend();
  StopDeferral deferral;
  hooks.before_step = [&](int64_t) { deferral.begin(StopDeferral::Tells::yes); };
  const TrainResult result = Run(opened.loaded.config, opened.data,
                                 {.files = files,
                                  .device = *machine.device,
                                  .catalogue = *machine.catalogue,
                                  .isa = isa_of(options)},
                                 {mode, opened.loaded.source}, hooks)
                                 .to_end();
  if (result.signal != 0) {
    say("  stopped and saved at step {}: the same command goes on", result.step);
    finish_output();
    throw ExitStatus{128 + result.signal};
  }
  OrderedJson figures = figures_of(files, run);
  record_.end(part, settings, figures);
  return figures;
}

OrderedJson Demo::compare(const std::string& part, const std::string& first,
                          const std::string& second) {
  if (const OrderedJson* kept = record_.result(part, settings)) return *kept;
  const ModelSource sources[] = {find_model_source(files, first), find_model_source(files, second)};
  const EvalText text = open_eval_text(sources[0], {"nll", {}}, {}, {.threads = options.threads});
  const auto key = [&](int64_t length) -> FunctionKey {
    return {function::evaluate, {.batch = text.batch, .seq = length, .documents = text.boundaries}};
  };
  std::vector<FunctionKey> keys;
  for (const int64_t length : text.lengths) keys.push_back(key(length));
  std::vector<NllSum> rows[2];
  for (size_t i = 0; i < 2; ++i) {
    Inference model(sources[i], keys, text_machine(backend()));
    const auto of_length = [&](int64_t length) -> BoundPlan& {
      const FunctionKey wanted = key(length);
      return model.function(wanted.name, wanted.size);
    };
    rows[i] = row_nll(of_length, *text.rows, text.batch);
  }
  const PairedNll paired = paired_nll(rows[0], rows[1]);
  OrderedJson result = {{"difference", paired.difference},
                        {"stderr_difference", paired.difference_error},
                        {"rows", rows[0].size()}};
  record_.end(part, settings, result);
  return result;
}

}  // namespace octet
