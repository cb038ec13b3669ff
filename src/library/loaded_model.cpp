#include "library/loaded_model.h"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "data/row_plan.h"
#include "train/eval_scales.h"
#include "train/run_setup.h"

namespace octet {
namespace {

// Tokens in memory.
class GivenTokens : public TokenSource {
 public:
  explicit GivenTokens(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  int64_t n_tokens() const override { return std::ssize(tokens_); }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    std::copy_n(tokens_.begin() + first, tokens.size(), tokens.begin());
    std::ranges::fill(flags, uint8_t{0});
  }
  uint64_t identity() const override { return 0; }

 private:
  std::vector<int32_t> tokens_;
};

void check_tokens(std::span<const int32_t> tokens, int64_t vocab) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab) continue;
    throw Error(ErrorCode::invalid_argument, "[model] expected tokens in [0, {}), got {}", vocab,
                token);
  }
}

// One that translates has no logits and no text without a source.
void expect_no_sources(const ModelSpec& spec) {
  if (model_def(spec.kind).translates) expect_text(spec);
}

GenerationRequest with_sources(GenerationRequest request) {
  const ModelSource source = find_model_source(posix_files(), request.model);
  request.about_sources = model_def(source.spec.kind).translates;
  return request;
}

}  // namespace

LoadedModel::LoadedModel(const BackendRequest& machine, GenerationRequest request, const Log& log)
    : machine_(machine),
      process_(::getpid()),
      setup_(setup_generation(posix_files(), with_sources(request), log)),
      recipe_(request.recipe),
      log_(log) {
  if (recipe_.empty()) recipe_ = find_model_source(posix_files(), request.model).recipe;
  take_run_scales(posix_files(), setup_.source, recipe_, log);
}

CallLock::Held LoadedModel::enter(const std::function<void()>& between) {
  if (machine_.device != "cpu" && is_forked_from(process_)) {
    throw Error(ErrorCode::device,
                "[model] expected the process that loaded a model on {}, got a forked child of it: "
                "load it here",
                machine_.device);
  }
  return lock_.enter("model", between);
}

std::vector<int32_t> LoadedModel::tokens_of(const std::string& text) const {
  return setup_.tokenizer->encode(text);
}

// For the thread of this call.
Backend& LoadedModel::backend(std::optional<Backend>& kept, cpu::RowSums rows) {
  if (!kept) {
    BackendRequest request = machine_;
    request.rows = rows;
    kept = open_backend(request, log_);
  }
  kept->device->enter();
  return *kept;
}

TextModel& LoadedModel::text_model(LogitsFor purpose, int64_t n_entries, int64_t capacity) {
  Backend& machine = backend(same_rows_, cpu::RowSums::same);
  auto& kept = purpose == LogitsFor::scoring ? scoring_ : generation_;
  if (kept && kept->n_entries() >= n_entries && kept->capacity() >= capacity) return *kept;
  const auto rounded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(capacity)));
  kept.reset();
  kept = make_text_model(setup_.source,
                         {.n_entries = n_entries,
                          .capacity = std::min(rounded, setup_.context),
                          .logits = purpose,
                          .picks = machine_.device != "cpu" && purpose == LogitsFor::generation},
                         {posix_files(), *machine.device, *machine.catalogue, log_});
  return *kept;
}

void LoadedModel::logits(std::span<const int32_t> tokens, std::span<float> out,
                         const std::function<void()>& between) {
  const int64_t vocab = source().spec.vocab, n = std::ssize(tokens);
  check_tokens(tokens, vocab);
  if (n > setup_.context) {
    throw Error(ErrorCode::invalid_argument, "[model] expected at most {} tokens, got {}",
                setup_.context, n);
  }
  if (n == 0) return;
  expect_no_sources(source().spec);
  const CallLock::Held held = enter(between);
  TextModel& model = text_model(LogitsFor::scoring, 1, n);
  const TextChunk chunk{.entry = 0, .first = 0, .tokens = tokens};
  model.logits({&chunk, 1}, [&](const TextChunk&, int64_t token, std::span<const float> row) {
    std::ranges::copy(row, out.begin() + token * vocab);
    between();
  });
}

BoundPlan& LoadedModel::evaluate(const FunctionKey& function) {
  Backend& machine = backend(library_rows_, cpu::RowSums::library);
  if (evaluated_ != function) {
    inference_.reset();
    evaluated_.reset();
    ModelSource own = source();
    own.recipe = recipe_;
    own.recipe_options = forward_options(own, recipe_);
    if (!own.run) own.spec.rope_seq = function.size.seq;
    inference_ = std::make_unique<Inference>(
        own, std::span(&function, 1),
        TextMachine{posix_files(), *machine.device, *machine.catalogue});
    evaluated_ = function;
  }
  return inference_->function(function.name, function.size);
}

NllSum LoadedModel::nll(std::vector<int32_t> tokens, NllSize size,
                        const std::function<void()>& between) {
  check_tokens(tokens, source().spec.vocab);
  return nll_of(TokenStream({std::make_shared<GivenTokens>(std::move(tokens))}), size, between);
}

NllSum LoadedModel::nll(std::string_view text, NllSize size, const std::function<void()>& between) {
  if (tokenizer().vocab_size() > source().spec.vocab) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected a tokenizer of at most the model's {} tokens, got {}",
                source().spec.vocab, tokenizer().vocab_size());
  }
  TextBuilder builder(tokenizer());
  builder.add_document(text);
  return nll_of(TokenStream({builder.build()}), size, between);
}

NllSum LoadedModel::nll_of(const TokenStream& stream, NllSize size,
                           const std::function<void()>& between) {
  constexpr int64_t kLongestDefault = 2048;
  const int64_t n = stream.n_tokens();
  if (n < 2) {
    throw Error(ErrorCode::invalid_argument, "[model] expected two tokens or more, got {}", n);
  }
  if (size.batch < 1 || size.seq < 0) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected a batch of 1 or more and rows of 0 or more, got {} and {}",
                size.batch, size.seq);
  }
  if (size.seq == 0) size.seq = std::min(source().seq, kLongestDefault);
  const CallLock::Held held = enter(between);
  const RowDocuments documents = source().run ? row_documents(*source().run) : RowDocuments::joined;
  expect_text(source().spec);
  BoundPlan& plan = evaluate({function::evaluate, {size.batch, size.seq, documents}});
  const SampleEval windows(stream, {.seq = size.seq, .boundaries = eval_boundaries(documents)}, n);
  NllSum total;
  for (int64_t first = 0; first < windows.n_rows(); first += size.batch) {
    total.add(batch_nll(plan, windows.at(first, size.batch)));
    between();
  }
  return total;
}

std::vector<Completion> LoadedModel::generate(const std::vector<Prompt>& prompts, int64_t batch,
                                              const GenerateOptions& options) {
  if (prompts.empty()) return {};
  if (batch < 1 || options.max_tokens < 0) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected a batch of 1 or more and 0 new tokens or more, got {} and {}",
                batch, options.max_tokens);
  }
  expect_no_sources(source().spec);
  for (const Prompt& prompt : prompts) check_sampling(prompt.sampling);
  const CallLock::Held held = enter();
  check_lengths(setup_, prompts, options.max_tokens);
  size_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.tokens.size());
  const int64_t wanted = static_cast<int64_t>(longest) + options.max_tokens;
  TextModel& model = text_model(LogitsFor::generation, std::min(batch, std::ssize(prompts)),
                                std::max<int64_t>(1, std::min(setup_.context, wanted)));
  return octet::generate(model, *setup_.tokenizer, prompts, options);
}

TranslateOptions LoadedModel::translate_options(const TranslationCall& call) const {
  TranslateOptions options =
      octet::translate_options(posix_files(), source(), setup_.options.stop_tokens,
                               {.max_tokens = call.max_tokens,
                                .n_beams = call.n_beams,
                                .length_penalty = call.length_penalty,
                                .early_stopping = call.early_stopping,
                                .sampling = call.sampling});
  if (options.beams.n_beams > 1 && !is_greedy(options.sampling)) {
    throw Error(ErrorCode::invalid_argument,
                "beams: expected 1 beside a temperature or a repetition penalty, got {}",
                options.beams.n_beams);
  }
  return options;
}

std::vector<TranslatedSource> LoadedModel::translate(const std::vector<std::string>& sources,
                                                     const TranslationCall& call) {
  constexpr int64_t kMaxBeams = 64;
  const ModelDef& def = model_def(source().spec.kind);
  if (!def.translates) {
    throw Error(ErrorCode::invalid_argument, "[model] expected a model that translates, got {}",
                def.name);
  }
  if (call.batch < 1 || call.n_beams < 0 || call.n_beams > kMaxBeams) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected a batch of 1 or more and at most {} beams, got {} and {}",
                kMaxBeams, call.batch, call.n_beams);
  }
  if (sources.empty()) return {};
  const TranslateOptions how = translate_options(call);
  const std::string prefix =
      call.source_prefix.value_or(source().run ? source().run->data.source_prefix : "");
  ModelSource own = source();
  const auto encoded = encode_sources(tokenizer(), sources, prefix, "sources", own.spec);
  const CallLock::Held held = enter();
  Backend& machine = backend(same_rows_, cpu::RowSums::same);
  const int64_t n_sources = std::min(call.batch, std::ssize(encoded));
  const bool is_kept = translation_ && translation_->n_sources() == n_sources &&
                       translation_->n_entries() == n_sources * how.beams.n_beams &&
                       translation_->capacity() >= how.rules.max_tokens &&
                       translated_.source_seq >= own.spec.source_seq;
  if (!is_kept) {
    translation_.reset();
    translation_ = make_text_model(own,
                                   {.n_entries = n_sources * how.beams.n_beams,
                                    .capacity = how.rules.max_tokens,
                                    .n_sources = n_sources},
                                   {posix_files(), *machine.device, *machine.catalogue, log_});
    translated_ = own.spec;
  }
  std::vector<TranslatedSource> done;
  for (Translation& one : octet::translate(*translation_, translated_, encoded, how)) {
    std::string text = octet::text_of(tokenizer(), one, how);
    done.push_back({.text = std::move(text), .translation = std::move(one)});
  }
  return done;
}

std::string LoadedModel::said(const std::vector<int32_t>& tokens) const {
  return setup_.tokenizer->decode(without_ends(*setup_.tokenizer, tokens));
}

const WeightReader& LoadedModel::weights() {
  const CallLock::Held held = weights_lock_.enter("model");
  if (!weights_)
    weights_.emplace(posix_files(), source().weights, source().spec, source().nonfinite);
  return *weights_;
}

bool LoadedModel::is_plain(const std::string& parameter) {
  if (weights().is_merged()) return false;  // read with their adapters
  if (!weights().is_as_stored(parameter)) return false;
  const auto stored = weights().stored(parameter).stored;
  return stored == SafeDtype::f32 || stored == SafeDtype::bf16 || stored == SafeDtype::f16;
}

}  // namespace octet
