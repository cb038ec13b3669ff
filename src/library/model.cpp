#include "octet/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "library/loaded_model.h"
#include "library/public_types.h"

namespace octet {
namespace {

Sampling sampling_of(const GenerationSettings& settings) {
  return {.temperature = settings.temperature,
          .top_k = settings.top_k,
          .top_p = settings.top_p,
          .min_p = settings.min_p,
          .repetition_penalty = settings.repetition_penalty,
          .seed = settings.seed};
}

std::optional<EarlyStopping> early_stopping_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (const auto known = enum_from_name<EarlyStopping>(name)) return known;
  throw Error(ErrorCode::invalid_argument,
              "early_stopping: expected no, yes, never or nothing, got '{}'", name);
}

TranslationCall call_of(const TranslationSettings& settings, size_t n_sources) {
  if (settings.max_tokens < 0 || settings.batch < 0) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected 0 or more new tokens and sources at a time, got {} and {}",
                settings.max_tokens, settings.batch);
  }
  TranslationCall call{.n_beams = settings.beams,
                       .length_penalty = settings.length_penalty,
                       .early_stopping = early_stopping_of(settings.early_stopping),
                       .sampling = {.temperature = settings.temperature,
                                    .top_k = settings.top_k,
                                    .top_p = settings.top_p,
                                    .min_p = settings.min_p,
                                    .seed = settings.seed},
                       .source_prefix = settings.source_prefix,
                       .batch = settings.batch};
  if (settings.max_tokens > 0) call.max_tokens = settings.max_tokens;
  if (call.batch == 0) call.batch = static_cast<int64_t>(std::max<size_t>(1, n_sources));
  return call;
}

TextLoss loss_of(const NllSum& sum) {
  return {.sum = sum.sum, .n_tokens = sum.n_tokens};
}

void go_on() {}  // between pieces of work there is nothing to do

}  // namespace

struct Model::State {
  LoadedModel model;
};

double TextLoss::perplexity() const {
  return std::exp(mean());
}

Model::Model(const Machine& machine, const std::string& path, const ModelOptions& options)
    : state_(new State{LoadedModel(request_of(machine),
                                   {.model = path,
                                    .tokenizer = options.tokenizer,
                                    .recipe = options.recipe,
                                    .context = options.context},
                                   log_of(options.on_message))}) {}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

std::string Model::kind() const {
  return std::string(model_def(state_->model.source().spec.kind).name);
}

int64_t Model::vocab() const {
  return state_->model.source().spec.vocab;
}

int64_t Model::n_parameters() const {
  return parameter_count(state_->model.source().spec);
}

int64_t Model::context() const {
  return state_->model.context();
}

std::vector<int32_t> Model::tokens(std::string_view text) const {
  return state_->model.tokenizer().encode(text);
}

std::string Model::text(std::span<const int32_t> tokens) const {
  return state_->model.tokenizer().decode(tokens);
}

std::vector<float> Model::logits(std::span<const int32_t> tokens) {
  std::vector<float> out(tokens.size() * static_cast<size_t>(vocab()));
  state_->model.logits(tokens, out, go_on);
  return out;
}

TextLoss Model::nll(std::string_view text, const TextLossOptions& options) {
  return loss_of(state_->model.nll(text, {.batch = options.batch, .seq = options.seq}, go_on));
}

TextLoss Model::nll(std::span<const int32_t> tokens, const TextLossOptions& options) {
  return loss_of(state_->model.nll(std::vector(tokens.begin(), tokens.end()),
                                   {.batch = options.batch, .seq = options.seq}, go_on));
}

GeneratedText Model::generate(const std::string& prompt, const GenerationSettings& settings) {
  return std::move(generate(std::vector{prompt}, settings).front());
}

std::vector<GeneratedText> Model::generate(const std::vector<std::string>& prompts,
                                           const GenerationSettings& settings) {
  LoadedModel& model = state_->model;
  GenerateOptions options = model.options();
  options.max_tokens = settings.max_tokens;
  options.stop_texts = settings.stop;
  options.on_text = settings.on_text;
  std::vector<Prompt> given;
  for (const std::string& prompt : prompts) {
    given.push_back(
        {.tokens = prompt_tokens(model.tokenizer(), prompt), .sampling = sampling_of(settings)});
  }
  const int64_t batch =
      settings.batch != 0 ? settings.batch : std::max<int64_t>(1, std::ssize(given));
  std::vector<Completion> done = model.generate(given, batch, options);
  std::vector<GeneratedText> texts;
  for (size_t i = 0; i < done.size(); ++i) {
    texts.push_back({.prompt = model.said(given[i].tokens),
                     .text = std::move(done[i].text),
                     .tokens = std::move(done[i].tokens),
                     .stop = std::string(enum_name(done[i].stop))});
  }
  return texts;
}

TranslatedText Model::translate(const std::string& source, const TranslationSettings& settings) {
  return std::move(translate(std::vector{source}, settings).front());
}

std::vector<TranslatedText> Model::translate(const std::vector<std::string>& sources,
                                             const TranslationSettings& settings) {
  std::vector<TranslatedText> texts;
  for (TranslatedSource& one :
       state_->model.translate(sources, call_of(settings, sources.size()))) {
    texts.push_back({.text = std::move(one.text),
                     .tokens = std::move(one.translation.tokens),
                     .stop = std::string(enum_name(one.translation.stop)),
                     .score = one.translation.score});
  }
  return texts;
}

}  // namespace octet
