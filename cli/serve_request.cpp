#include "cli/serve_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/error.h"
#include "cli/serve_fields.h"

namespace octet {
namespace {

constexpr int64_t kMaxStops = 16, kMaxLogprobs = 20, kMaxChoices = 128;

// Fields that both kinds of requests have, but logprobs.
struct Shared {
  int64_t n = 1;
  std::optional<int64_t> max_tokens = {};
  int64_t usual = 16;  // tokens where none are asked for, as OpenAI has it
  Sampling sampling;
  std::vector<std::string> stops;
};

void read_streaming(ServeFields& fields, TextRequest& request) {
  request.streams = fields.boolean("stream");
  if (const OrderedJson options = fields.any("stream_options");
      !request.streams && !options.is_null())
    fields.fail("stream_options", "none without stream: true", options);
  fields.object("stream_options", [&](ServeFields& options) {
    request.includes_usage = options.boolean("include_usage");
    options.nothing("include_obfuscation", {false});
  });
}

Sampling read_sampling(ServeFields& fields, const std::optional<uint32_t>& seed) {
  Sampling sampling;
  sampling.temperature = fields.number("temperature", 0, 2).value_or(1);
  sampling.top_p = fields.number("top_p", 0, 1).value_or(1);
  if (sampling.top_p == 0) sampling.temperature = 0, sampling.top_p = 1;  // one token alone
  sampling.top_k = fields.integer("top_k", -1, INT32_MAX).value_or(0);
  sampling.top_k = std::max<int64_t>(sampling.top_k, 0);
  sampling.min_p = fields.number("min_p", 0, 1).value_or(0);
  sampling.repetition_penalty = fields.number("repetition_penalty", 1e-6, 1e6).value_or(1);
  const auto asked = fields.integer("seed", 0, UINT32_MAX);
  sampling.seed = asked ? static_cast<uint32_t>(*asked) : seed ? *seed : std::random_device()();
  return sampling;
}

void expect_model(ServeFields& fields, const ServedModel& model) {
  const std::string name = fields.text("model");
  if (name != model.name) throw not_served_error(name, model.name);
}

// Fields that may ask for nothing, and labels.
void read_absent(ServeFields& fields) {
  for (const char* name_of_penalty : {"presence_penalty", "frequency_penalty"})
    fields.nothing(name_of_penalty, {0});
  fields.nothing("logit_bias", {OrderedJson::object()});
  fields.object("response_format", [](ServeFields& format) {
    if (const std::string type = format.text("type"); type != "text")
      format.fail("type", "text", type);
  });
  for (const char* absent : {"tools", "functions"}) fields.nothing(absent, {OrderedJson::array()});
  for (const char* choice : {"tool_choice", "function_call"})
    fields.nothing(choice, {"none", "auto"});
  fields.nothing("parallel_tool_calls", {true, false});
  fields.nothing("modalities", {OrderedJson::array({"text"})});
  for (const char* label : {"user", "safety_identifier", "prompt_cache_key", "service_tier"})
    fields.label(label);
  fields.boolean("store");
  if (const OrderedJson notes = fields.any("metadata"); !notes.is_null() && !notes.is_object())
    fields.fail("metadata", "an object", notes);
}

Shared read_shared(ServeFields& fields, const ServedModel& model, TextRequest& request) {
  Shared shared;
  expect_model(fields, model);
  read_streaming(fields, request);
  shared.n = fields.integer("n", 1, kMaxChoices).value_or(1);
  shared.sampling = read_sampling(fields, model.seed);
  shared.stops = fields.texts("stop", kMaxStops);
  read_absent(fields);
  return shared;
}

// The texts of one prompt, as many tokens as are asked for or as there is room for.
void add_texts(TextRequest& request, const ServedModel& model, const Shared& shared,
               std::vector<int32_t> prompt) {
  check_prompt(prompt, model.vocab);
  const int64_t n = std::ssize(prompt), left = model.context - n;
  if (left < shared.max_tokens.value_or(1)) {
    throw ServeError{
        .message = fmt::format("expected at most {} tokens, got a prompt of {} and {} more",
                               model.context, n, shared.max_tokens.value_or(1)),
        .param = request.is_chat ? "messages" : "prompt",
        .code = "context_length_exceeded"};
  }
  request.n_prompt_tokens += n;
  ServeText text{.prompt = {.tokens = std::move(prompt), .sampling = shared.sampling},
                 .max_tokens = shared.max_tokens.value_or(std::min(shared.usual, left)),
                 .stop_texts = shared.stops,
                 .n_logprobs = request.n_logprobs,
                 .scores_prompt = request.echoes && request.n_logprobs >= 0};
  for (int64_t i = 0; i < shared.n; ++i) {
    request.texts.push_back(text);
    ++text.prompt.sampling.seed;  // each of its own, and the first as without the others
  }
}

[[noreturn]] void bad_prompt(std::string_view got) {
  throw ServeError{.message = fmt::format("prompt: expected a text, an array of token ids, or an "
                                          "array of these, got {}",
                                          got),
                   .param = "prompt"};
}

std::vector<int32_t> token_prompt(const ServedModel& model, const OrderedJson& ids) {
  std::vector<int32_t> tokens;
  for (const OrderedJson& id : ids) {
    const bool fits = id.is_number_integer() && id >= 0 && id < model.vocab;
    if (!fits) {
      bad_prompt(fmt::format("{} where a token id below {} should be", json_line(id).substr(0, 40),
                             model.vocab));
    }
    tokens.push_back(id.get<int32_t>());
  }
  if (tokens.empty()) bad_prompt("no token");
  return tokens;
}

std::vector<int32_t> encoded_prompt(const ServedModel& model, const std::string& text) {
  try {
    return prompt_tokens(model.tokenizer, text);
  } catch (const Error&) {
    bad_prompt("an empty text, and the tokenizer has no token to begin with");
  }
}

std::vector<std::vector<int32_t>> prompts_of(const ServedModel& model, const OrderedJson& prompt) {
  if (prompt.is_string()) return {encoded_prompt(model, prompt.get<std::string>())};
  if (!prompt.is_array()) bad_prompt(prompt.is_null() ? "none" : prompt.type_name());
  if (prompt.empty()) bad_prompt("an empty array");
  if (prompt.front().is_number()) return {token_prompt(model, prompt)};
  std::vector<std::vector<int32_t>> prompts;
  for (const OrderedJson& one : prompt) {
    if (!one.is_string() && !one.is_array()) bad_prompt(one.type_name());
    prompts.push_back(one.is_string() ? encoded_prompt(model, one.get<std::string>())
                                      : token_prompt(model, one));
  }
  return prompts;
}

// A text without the mark of a picture, whose token no picture would stand behind.
std::string read_text(ServeFields& fields, const std::string& name, const ServedModel& model) {
  std::string text = fields.text(name);
  if (model.pictures != nullptr && text.find(model.pictures->mark()) != text.npos) {
    fields.fail(name,
                "a text without " + model.pictures->mark() +
                    ", for which a part of the type image_url stands",
                text);
  }
  return text;
}

// A text, or parts: texts one behind the other, and where there are pictures, whose mark stands for
// them, a line each, as conversations of training have them.
std::string read_content(ServeFields& message, const std::string& role, const ServedModel& model,
                         std::vector<SentPicture>& pictures) {
  const OrderedJson content = message.any("content");
  if (content.is_string()) return read_text(message, "content", model);
  if (!content.is_array()) message.fail("content", "a text, or an array of parts", content);
  const size_t n_before = pictures.size();
  std::vector<std::string> texts;
  for (const OrderedJson& part : content) {
    ServeFields fields(part, message.name_of(fmt::format("content[{}]", texts.size())));
    const std::string type = fields.text("type");
    if (type == "image_url" && model.pictures != nullptr) {
      if (role != "user") fields.fail("type", "text, where the role is " + role, type);
      texts.push_back(model.pictures->mark());
      pictures.push_back(model.pictures->read(fields, pictures.size()));
    } else if (type == "text") {
      texts.push_back(read_text(fields, "text", model));
    } else {
      const char* const expected = model.pictures != nullptr
                                       ? "text or image_url"
                                       : "text, as the model that is served takes no pictures";
      fields.fail("type", expected, type);
    }
    fields.refuse_others();
  }
  return fmt::format("{}", fmt::join(texts, pictures.size() > n_before ? "\n" : ""));
}

OrderedJson read_messages(ServeFields& fields, const ServedModel& model,
                          std::vector<SentPicture>& pictures) {
  OrderedJson messages = OrderedJson::array();
  const OrderedJson given = fields.any("messages");
  if (given.is_null() && !fields.any("prompt").is_null()) {
    fields.fail("messages", "an array of messages (a prompt is of /v1/completions)", given);
  }
  if (!given.is_array() || given.empty())
    fields.fail("messages", "an array of messages, at least one", given);
  for (const OrderedJson& one : given) {
    ServeFields message(one, fmt::format("messages[{}]", messages.size()));
    const std::string role = message.text("role");
    if (role != "system" && role != "user" && role != "assistant")
      message.fail("role", "system, user or assistant", role);
    const std::string content = read_content(message, role, model, pictures);
    messages.push_back({{"role", role}, {"content", content}});
    if (const OrderedJson name = message.any("name"); !name.is_null())
      messages.back()["name"] = message.text("name");
    for (const char* absent : {"tool_calls", "refusal", "audio", "function_call"})
      message.nothing(absent, {OrderedJson::array()});
    message.refuse_others();
  }
  return messages;
}

}  // namespace

TextRequest read_completion(const ServedModel& model, std::string_view body) {
  const OrderedJson json = parse_body(body);
  ServeFields fields(json);
  TextRequest request;
  Shared shared = read_shared(fields, model, request);
  const OrderedJson prompt = fields.any("prompt");
  if (prompt.is_null() && json.contains("messages"))
    bad_prompt("none: messages are of /v1/chat/completions");
  const auto prompts = prompts_of(model, prompt);
  shared.max_tokens = fields.integer("max_tokens", 0, INT32_MAX);
  request.n_logprobs = static_cast<int>(fields.integer("logprobs", 0, kMaxLogprobs).value_or(-1));
  request.echoes = fields.boolean("echo");
  fields.nothing("suffix", {""});
  fields.nothing("best_of", shared.n == 1 ? std::vector<OrderedJson>{1}
                                          : std::vector<OrderedJson>{1, shared.n});
  fields.refuse_others();
  if (request.echoes && request.streams)
    fields.fail("echo", "false, where stream is true", OrderedJson(true));
  if (std::ssize(prompts) * shared.n > kMaxChoices * kMaxChoices)
    fields.fail("prompt", "fewer prompts", fields.any("n"));
  for (const std::vector<int32_t>& prompt : prompts) {
    if (model.pictures != nullptr && std::ranges::count(prompt, model.pictures->token()) > 0) {
      throw ServeError{.message = fmt::format("prompt: expected no {}, as pictures stand in "
                                              "messages of /v1/chat/completions alone, got one",
                                              model.pictures->mark()),
                       .param = "prompt"};
    }
    add_texts(request, model, shared, prompt);
  }
  return request;
}

TextRequest read_chat(const ServedModel& model, std::string_view body) {
  const OrderedJson json = parse_body(body);
  ServeFields fields(json);
  TextRequest request;
  request.is_chat = true;
  Shared shared = read_shared(fields, model, request);
  std::vector<SentPicture> pictures;
  const OrderedJson messages = read_messages(fields, model, pictures);
  const auto older = fields.integer("max_tokens", 1, INT32_MAX);
  shared.max_tokens = fields.integer("max_completion_tokens", 1, INT32_MAX);
  if (older && shared.max_tokens)
    fields.fail("max_tokens", "it without max_completion_tokens", OrderedJson(*older));
  const bool has_logprobs = fields.boolean("logprobs");
  const auto top = fields.integer("top_logprobs", 0, kMaxLogprobs);
  if (top && !has_logprobs)
    fields.fail("top_logprobs", "it with logprobs: true", OrderedJson(*top));
  if (has_logprobs) request.n_logprobs = static_cast<int>(top.value_or(0));
  fields.refuse_others();
  std::vector<int32_t> tokens, placed;
  try {
    tokens = model.pictures != nullptr
                 ? model.pictures->tokens(*model.chat, messages, pictures.size(), placed)
                 : model.chat->tokens(model.chat->render({{"messages", messages}}));
  } catch (const Error& error) {
    throw ServeError{.message = error.what(), .param = "messages"};
  }
  if (tokens.empty()) fields.fail("messages", "messages of a token or more", messages);
  shared.stops.insert(shared.stops.end(), model.chat_stops.begin(), model.chat_stops.end());
  if (older) shared.max_tokens = older;
  shared.usual = model.context;
  add_texts(request, model, shared, std::move(tokens));
  if (pictures.empty()) return request;
  const auto shown = model.pictures->shown(pictures, std::move(placed));
  for (ServeText& text : request.texts) text.pictures = shown;
  return request;
}

EmbeddingRequest read_embedding(const ServedModel& model, std::string_view body) {
  const OrderedJson json = parse_body(body);
  ServeFields fields(json);
  expect_model(fields, model);
  constexpr int64_t kMaxTexts = 2048;  // OpenAI's
  EmbeddingRequest request{.texts = fields.texts("input", kMaxTexts)};
  if (request.texts.empty())
    fields.fail("input", "a text, or an array of texts", fields.any("input"));
  if (const OrderedJson format = fields.any("encoding_format"); !format.is_null()) {
    request.is_base64 = format == "base64";
    if (!request.is_base64 && format != "float")
      fields.fail("encoding_format", "float or base64", format);
  }
  fields.nothing("dimensions", {});
  fields.label("user");
  fields.refuse_others();
  return request;
}

}  // namespace octet
