#include "cli/serve_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "base/base64.h"
#include "infer/tasks/task.h"

namespace octet {
namespace {

// Hexadecimal digits that no other answer has.
std::string unique_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

OrderedJson reason(Stop stop) {
  if (stop == Stop::none) return nullptr;
  return stop == Stop::length ? "length" : "stop";
}

OrderedJson number_or_null(const std::optional<double>& number) {
  return number ? OrderedJson(*number) : OrderedJson(nullptr);
}

std::string event_text(const OrderedJson& json) {
  return "data: " + json_line(json) + "\n\n";
}

}  // namespace

TextAnswer::TextAnswer(const ServedModel& model, TextRequest request)
    : model_(model),
      request_(std::move(request)),
      id_((request_.is_chat ? "chatcmpl-" : "cmpl-") + unique_name()),
      created_(std::time(nullptr)),
      choices_(request_.texts.size()) {
  const bool has_offsets = !request_.is_chat && request_.n_logprobs >= 0;
  if (!request_.echoes && !has_offsets) return;  // nobody asks where the prompt ends
  for (size_t i = 0; i < choices_.size(); ++i) {
    const auto& prompt = request_.texts[i].prompt.tokens;
    const std::string text = model.tokenizer.decode(without_ends(model.tokenizer, prompt));
    if (request_.echoes) {
      choices_[i].text = text;
    } else {
      choices_[i].offset = n_characters(text);
    }
  }
}

void TextAnswer::add(TextEvent event) {
  Choice& choice = choices_[event.index];
  choice.text += event.text;
  choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
  choice.stop = event.stop;
  n_tokens_ += event.n_tokens;
}

OrderedJson TextAnswer::usage() const {
  return {{"prompt_tokens", request_.n_prompt_tokens},
          {"completion_tokens", n_tokens_},
          {"total_tokens", request_.n_prompt_tokens + n_tokens_}};
}

OrderedJson TextAnswer::object(std::string_view kind) const {
  return {{"id", id_}, {"object", kind}, {"created", created_}, {"model", model_.name}};
}

OrderedJson TextAnswer::token_json(const TokenScore& score) const {
  const auto one = [&](int32_t id, const std::optional<double>& logprob) -> OrderedJson {
    const std::string text = token_text(id);
    OrderedJson bytes = OrderedJson::array();
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return {{"token", text}, {"logprob", number_or_null(logprob)}, {"bytes", bytes}};
  };
  OrderedJson json = one(score.id, score.logprob);
  json["top_logprobs"] = OrderedJson::array();
  for (const auto& [id, logprob] : score.top) json["top_logprobs"].push_back(one(id, logprob));
  return json;
}

OrderedJson TextAnswer::logprobs(const std::vector<TokenScore>& tokens, Choice& choice) {
  if (request_.n_logprobs < 0) return nullptr;
  if (request_.is_chat) {
    OrderedJson content = OrderedJson::array();
    for (const TokenScore& score : tokens) content.push_back(token_json(score));
    return {{"content", content}, {"refusal", nullptr}};
  }
  OrderedJson json = {{"tokens", OrderedJson::array()},
                      {"token_logprobs", OrderedJson::array()},
                      {"top_logprobs", OrderedJson::array()},
                      {"text_offset", OrderedJson::array()}};
  for (const TokenScore& score : tokens) {
    const std::string text = token_text(score.id);
    json["tokens"].push_back(text);
    json["token_logprobs"].push_back(number_or_null(score.logprob));
    json["text_offset"].push_back(choice.offset);
    choice.offset += n_characters(text);
    // By text: of tokens that are written alike the most probable one. The token itself is there.
    OrderedJson top = OrderedJson::object();
    for (const auto& [id, logprob] : score.top) {
      const std::string other = token_text(id);
      if (!top.contains(other)) top[other] = logprob;
    }
    if (score.logprob && !top.contains(text)) top[text] = *score.logprob;
    json["top_logprobs"].push_back(score.logprob ? top : OrderedJson(nullptr));
  }
  return json;
}

OrderedJson TextAnswer::whole() {
  OrderedJson json = object(request_.is_chat ? "chat.completion" : "text_completion");
  json["choices"] = OrderedJson::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    OrderedJson row = {{"index", i}};
    if (request_.is_chat) {
      row["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      row["text"] = choice.text;
    }
    row["logprobs"] = logprobs(choice.tokens, choice);
    row["finish_reason"] = reason(choice.stop);
    json["choices"].push_back(std::move(row));
  }
  json["usage"] = usage();
  return json;
}

OrderedJson TextAnswer::chunk(size_t index, OrderedJson delta, OrderedJson scores,
                              Stop stop) const {
  OrderedJson json = object(request_.is_chat ? "chat.completion.chunk" : "text_completion");
  OrderedJson row = {{"index", index}};
  row[request_.is_chat ? "delta" : "text"] = std::move(delta);
  row["logprobs"] = std::move(scores);
  row["finish_reason"] = reason(stop);
  json["choices"] = OrderedJson::array({row});
  if (request_.includes_usage) json["usage"] = nullptr;
  return json;
}

std::string TextAnswer::begin() const {
  std::string text;
  for (size_t i = 0; request_.is_chat && i < choices_.size(); ++i) {
    const OrderedJson role = {{"role", "assistant"}, {"content", ""}};
    text += event_text(chunk(i, role, nullptr, Stop::none));
  }
  return text;
}

std::string TextAnswer::part(const TextEvent& event) {
  n_tokens_ += event.n_tokens;
  OrderedJson delta = event.text;
  if (request_.is_chat) {
    delta = OrderedJson::object();
    if (!event.text.empty()) delta["content"] = event.text;
  }
  return event_text(chunk(event.index, std::move(delta),
                          logprobs(event.tokens, choices_[event.index]), event.stop));
}

std::string TextAnswer::end() const {
  std::string text;
  if (request_.includes_usage) {
    OrderedJson json = object(request_.is_chat ? "chat.completion.chunk" : "text_completion");
    json["choices"] = OrderedJson::array();
    json["usage"] = usage();
    text = event_text(json);
  }
  return text + "data: [DONE]\n\n";
}

OrderedJson embeddings_json(const ServedModel& model, const EmbeddingRequest& request,
                            const Embeddings& rows) {
  OrderedJson data = OrderedJson::array();
  for (int64_t i = 0; i < rows.n; ++i) {
    const auto row =
        std::span(rows.values)
            .subspan(static_cast<size_t>(i * rows.width), static_cast<size_t>(rows.width));
    const OrderedJson values = request.is_base64
                                   ? OrderedJson(encode_base64(std::as_bytes(row)))
                                   : OrderedJson(std::vector<float>(row.begin(), row.end()));
    data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", values}});
  }
  return {{"object", "list"},
          {"data", data},
          {"model", model.name},
          {"usage", {{"prompt_tokens", rows.n_tokens}, {"total_tokens", rows.n_tokens}}}};
}

}  // namespace octet
