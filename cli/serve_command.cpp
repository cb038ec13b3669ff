#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/embed_queue.h"
#include "cli/enum_option.h"
#include "cli/generate_setup.h"
#include "cli/serve_app.h"
#include "cli/signals.h"
#include "data/chat_pictures.h"
#include "infer/image_transforms.h"
#include "infer/sentence_folder.h"
#include "nn/shape.h"
#include "text/padding.h"

namespace octet {
namespace {

constexpr int64_t kServedContext = 4096;              // tokens, unless --context says otherwise
constexpr int64_t kPicturesBody = int64_t{32} << 20;  // bytes, unless --max-body does

struct ServeFlags : GenerateFlags {
  int64_t n_pictures = 0;  // of a conversation; 0: as the model says
  std::string name, token;
  HttpOptions http = {};
  std::optional<int64_t> max_body;  // of http
  ServeLimits limits = {};
};

// The last part of the path that --model names, unless --name says otherwise.
std::string served_name(const ServeFlags& flags) {
  if (!flags.name.empty()) return flags.name;
  const auto path = std::filesystem::absolute(flags.model).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

ServeAccess access_of(const ServeFlags& flags) {
  const char* const said = std::getenv("OCTET_SERVE_TOKEN");
  ServeAccess access{.token = flags.token.empty() && said != nullptr ? said : flags.token};
  const std::string& host = flags.http.host;
  if (is_loopback(host == "::1" ? "[::1]" : host) || !access.token.empty()) return access;
  throw Error(ErrorCode::invalid_argument,
              "--host {}: expected --token, or OCTET_SERVE_TOKEN, for what others can reach, got "
              "none",
              host);
}

// Answers until a signal asks for the end; then `drain` waits for requests that run.
void run_server(const ServeFlags& flags, const GlobalOptions& options, const ServeApp& app,
                const ServedModel& model, const std::function<void()>& drain) {
  StopDeferral deferral;
  deferral.begin();
  HttpServer server(
      flags.http, [&](const HttpRequest& request) { return app.answer(request); },
      &ServeApp::refusal);
  const std::string host = flags.http.host.find(':') == std::string::npos
                               ? flags.http.host
                               : "[" + flags.http.host + "]";
  const std::string url = fmt::format("http://{}:{}", host, server.port());
  if (options.json) {
    write_out(json_line({{"url", url}, {"model", model.name}}) + "\n");
  } else {
    write_line("serving {} at {} (chat page) and {}/v1 (API); Ctrl-C ends it", model.name, url,
               url);
  }
  flush_output();
  while (stop_wish() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  make_log(options).info("ending: requests that run get their end; once more ends at once");
  drain();
  server.stop();
  throw ExitStatus{128 + stop_wish()};
}

// Room for pictures of a model that sees some; what else asks for it is refused.
void make_room_for_pictures(const ServeFlags& flags, ModelSpec& spec) {
  if (model_def(spec.kind).sees_pictures) {
    if (flags.n_pictures > 0) spec.images = flags.n_pictures;
  } else if (flags.n_pictures > 0) {
    throw Error(ErrorCode::invalid_argument,
                "--images: expected a model that sees pictures (llava, idefics3), got {}",
                model_def(spec.kind).name);
  }
}

// Pictures of conversations; none of a model that sees none.
std::optional<ServedPictures> served_pictures(const GenerateSetup& setup,
                                              const TextModel& text_model, const Log& log) {
  const ModelSpec& spec = setup.source.spec;
  if (!model_def(spec.kind).sees_pictures) return {};
  if (!text_model.has_cache()) {
    throw Error(ErrorCode::invalid_argument,
                "[serve] expected a device with kernels for the cache of a model that sees "
                "pictures, got none");
  }
  const ImagesConfig images = evaluation_images(posix_files(), setup.source, log);
  return std::optional<ServedPictures>(std::in_place, posix_files(),
                                       picture_options(spec, images, *setup.tokenizer),
                                       image_mark(*setup.tokenizer, spec));
}

void serve_text(const ServeFlags& flags, const GlobalOptions& options, GenerateSetup& setup) {
  if (has_source(setup.source.spec)) {
    throw Error(ErrorCode::invalid_argument,
                "[serve] expected a model that goes on from a text alone, got {}, which reads a "
                "source beside it",
                model_def(setup.source.spec.kind).name);
  }
  if (flags.context == 0) setup.context = std::min(setup.context, kServedContext);
  ChatPrompts& chat = setup.chat_prompts(flags.chat_template);
  const bool is_cpu = options.device == "cpu";
  Backend backend = open_backend(options, {.same_rows = true});
  const auto text_model = make_text_model(setup.source,
                                          {.n_entries = flags.batch,
                                           .capacity = setup.context,
                                           .logits = LogitsFor::scoring,
                                           .picks = !is_cpu,
                                           .runs_one_alone = is_cpu},
                                          text_machine(backend, make_log(options)));
  const auto pictures = served_pictures(setup, *text_model, make_log(options));
  ServeEngine engine(*text_model, *setup.tokenizer, setup.options.stop_tokens, flags.limits);
  const ServedModel model{.name = served_name(flags),
                          .tokenizer = *setup.tokenizer,
                          .chat = &chat,
                          .chat_stops = setup.options.stop_texts,
                          .vocab = text_model->vocab(),
                          .context = setup.context,
                          .seed = options.seed,
                          .pictures = pictures ? &*pictures : nullptr};
  const ServeApp app(model, &engine, {}, access_of(flags), make_log(options));
  run_server(flags, options, app, model, [&] { engine.close(); });
}

void serve_embeddings(const ServeFlags& flags, const GlobalOptions& options,
                      const GenerateSetup& setup) {
  const Log log = make_log(options);
  const SentenceFolder said = read_sentence_folder(posix_files(), setup.source.folder);
  const int64_t longest = longest_row(setup.source.spec);
  const int64_t most = max_tokens_of_folder(posix_files(), setup.source.folder, longest);
  Backend backend = open_backend(options);
  Embedder embedder(setup.source, *setup.tokenizer,
                    {.pooling = said.pooling,
                     .normalizes = said.normalizes,
                     .max_tokens = most,
                     .cut = cut_side(posix_files(), setup.source.tokenizer),
                     .width = said.width,
                     .batch = flags.batch,
                     .threads = options.threads},
                    text_machine(backend, log));
  const ServedModel model{
      .name = served_name(flags), .tokenizer = *setup.tokenizer, .context = embedder.max_tokens()};
  EmbedQueue queue(embedder, flags.limits);
  const ServeApp app(
      model, nullptr, [&](const std::vector<std::string>& texts) { return queue.embed(texts); },
      access_of(flags), log);
  run_server(flags, options, app, model, [&] { queue.close(); });
}

void run_serve(const ServeFlags& given, const GlobalOptions& options) {
  access_of(given);  // before anything is read
  GenerateSetup setup = generate_setup(given, options);
  make_room_for_pictures(given, setup.source.spec);
  const ModelDef& def = model_def(setup.source.spec.kind);
  ServeFlags flags = given;
  if (def.sees_pictures) flags.http.max_body = kPicturesBody;
  if (given.max_body) flags.http.max_body = *given.max_body;
  if (def.writes_text || def.sees_pictures) return serve_text(flags, options, setup);
  serve_embeddings(flags, options, setup);
}

void add_limit_flags(CLI::App& serve, ServeFlags& flags) {
  serve
      .add_option("--queue", flags.limits.queue,
                  "texts that wait for their turn (256); beyond, 503")
      ->check(CLI::Range(0, 1 << 20));
  serve
      .add_option("--request-seconds", flags.limits.seconds,
                  "that a request may take (600); beyond, 504")
      ->check(CLI::Range(0.1, 1e6));
  serve
      .add_option("--connections", flags.http.connections,
                  "connections at a time (128); more wait to be accepted")
      ->check(CLI::Range(1, 4096));
  serve
      .add_option(
          "--max-body", flags.max_body,
          "bytes of a request's body (4 MiB; 32 of a model that sees pictures); beyond, 413")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
}

}  // namespace

void add_serve_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<ServeFlags>();
  flags->batch = 8;
  CLI::App* serve =
      app.add_subcommand("serve", "a model behind OpenAI's API, with a page to chat on");
  add_model_flags(*serve, *flags);
  serve->add_option(
      "--host", flags->http.host,
      "the address to listen at, 127.0.0.1 without it; any but the machine's own needs --token");
  serve->add_option("--port", flags->http.port, "8080 without it; 0: a free one")
      ->check(CLI::Range(0, 65535));
  serve->add_option("--token", flags->token,
                    "what requests must bring (Authorization: Bearer TOKEN); without, "
                    "OCTET_SERVE_TOKEN, which others on this machine do not see");
  serve->add_option("--name", flags->name,
                    "what requests call the model; without, the last part of --model");
  serve->add_option("--batch", flags->batch, "texts side by side (8)")->check(CLI::Range(1, 4096));
  serve
      ->add_option("--context", flags->context,
                   "most tokens of a text; 0: the model's, 4096 at most")
      ->check(CLI::NonNegativeNumber);
  serve
      ->add_option("--images", flags->n_pictures,
                   "most pictures of a conversation, of a model that sees some; without, the "
                   "run's model.images, of a folder 1")
      ->check(CLI::Range(size_t{1}, kMaxPictures));
  serve->add_option("--template", flags->chat_template,
                    "a chat template: a file, chatml or plain; auto: the model's");
  serve->add_option("--recipe", flags->recipe, "precision, as generate has it");
  add_calib_option(*serve, flags->calib);
  add_enum_option(*serve, "--weights", flags->weights,
                  "what the layers' matrices are kept as; auto: the recipe's type");
  add_limit_flags(*serve, *flags);
  add_arithmetic_option(*serve, options);
  add_nonfinite_flag(*serve, flags->allow_nonfinite);
  serve->callback([flags, &options] {
    flags->http.seconds = flags->limits.seconds;
    run_serve(*flags, options);
  });
}

}  // namespace octet
