// octet serve as clients see it: raw HTTP to the program, which serves a model that just learned
// six words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "cli/encoders/encoder_run.h"
#include "cli/program_run.h"
#include "cli/serve/serve_child.h"
#include "cli/signals/child.h"
#include "cli/train/tiny_run.h"

namespace octet::serve_test {
namespace {

using nlohmann::json;
using test::ServeChild;
using testing::HasSubstr;

class Serve : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::signal(SIGPIPE, SIG_IGN);  // a server that hangs up fails a test, it does not end them
    folder_ = new test::ScratchFolder;
    const std::string yaml = folder_->put("run.yaml", test::tiny_yaml(*folder_));
    const test::Outcome trained = test::run_program(
        *folder_, "train " + yaml + " --quiet --set train.steps=60 --set model.seq=96");
    ASSERT_EQ(trained.code, 0) << trained.err;
    server_ = new ServeChild(*folder_, "run", {"--max-body", "65536", "--queue", "90"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }

  static json completion(const std::string& prompt, int n) {
    return {{"model", "run"}, {"prompt", prompt}, {"max_tokens", n}, {"temperature", 0}};
  }
  static json chat(const std::string& text, int n) {
    return {{"model", "run"},
            {"messages", {{{"role", "user"}, {"content", text}}}},
            {"max_tokens", n},
            {"temperature", 0}};
  }
  static json generated(const std::string& flags) {
    const std::string model = *folder_ / "run";
    const auto done =
        test::run_program(*folder_, "generate --model " + model + " --quiet --json " + flags);
    EXPECT_EQ(done.code, 0) << done.err;
    return json::parse(done.out);
  }
  static void expect_error(const httplib::Result& result, int status, const std::string& what) {
    ASSERT_TRUE(result) << what;
    EXPECT_EQ(result->status, status) << what << ": " << result->body;
    const json error = json::parse(result->body, nullptr, false);
    EXPECT_TRUE(error.is_object() && error["error"]["message"].is_string()) << what;
  }

  static inline test::ScratchFolder* folder_ = nullptr;
  static inline ServeChild* server_ = nullptr;
};

TEST_F(Serve, lists_its_model_and_has_a_page_of_its_own) {
  const auto models = server_->client().Get("/v1/models");
  ASSERT_TRUE(models);
  EXPECT_EQ(json::parse(models->body)["data"][0]["id"], "run");
  EXPECT_EQ(json::parse(server_->client().Get("/v1/models/run")->body)["max_model_len"], 96);
  const auto page = server_->client().Get("/");
  ASSERT_TRUE(page);
  EXPECT_THAT(page->get_header_value("Content-Type"), HasSubstr("text/html"));
  EXPECT_THAT(page->body, HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(page->body,
              testing::Not(testing::ContainsRegex("(src|href)=.?[^d\"]|https?://|@import")));
}

TEST_F(Serve, writes_what_generate_writes) {
  const json greedy = server_->answer("completions", completion("amax sc", 30));
  const json expected = generated("--prompt 'amax sc' --max-tokens 30");
  EXPECT_EQ(greedy["choices"][0]["text"], expected["completion"]);
  EXPECT_EQ(greedy["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(greedy["usage"],
            json({{"prompt_tokens", 7}, {"completion_tokens", 30}, {"total_tokens", 37}}));
  json sampled = completion("amax sc", 20);
  sampled.update({{"temperature", 0.9}, {"top_p", 0.8}, {"top_k", 9}, {"seed", 5}, {"n", 2}});
  const json two = server_->answer("completions", sampled)["choices"];
  for (const int i : {0, 1}) {
    const std::string flags =
        "--prompt 'amax sc' --max-tokens 20 --temperature 0.9 --top-p 0.8 --top-k 9 --seed ";
    EXPECT_EQ(two[i]["text"], generated(flags + std::to_string(5 + i))["completion"]);
  }
  const json talk = server_->answer("chat/completions", chat("amax sc", 12));
  EXPECT_EQ(talk["choices"][0]["message"]["content"],
            generated("--chat --prompt 'amax sc' --max-tokens 12")["content"]);
  // Ids in place of text, and several prompts.
  json ids = completion("", 8);
  ids["prompt"] = {{'a', 'm', 'a'}, {'s', 't'}};
  json texts = completion("", 8);
  texts["prompt"] = {"ama", "st"};
  EXPECT_EQ(server_->answer("completions", ids)["choices"],
            server_->answer("completions", texts)["choices"]);
}

TEST_F(Serve, a_stop_text_ends_the_answer) {
  const std::string whole =
      server_->answer("completions", completion("amax ", 40))["choices"][0]["text"];
  json body = completion("amax ", 40);
  body["stop"] = {"nothing-like-it", whole.substr(12, 4)};
  const json cut = server_->answer("completions", body)["choices"][0];
  EXPECT_EQ(cut["text"], whole.substr(0, whole.find(whole.substr(12, 4))));
  EXPECT_EQ(cut["finish_reason"], "stop");
}

TEST_F(Serve, streams_what_it_writes_at_once) {
  json body = completion("amax sc", 25);
  body.update({{"logprobs", 2}, {"stream_options", {{"include_usage", true}}}});
  const std::vector<json> events = server_->events("completions", body);
  body.erase("stream_options");
  const json whole = server_->answer("completions", body);
  std::string text;
  json logprobs = json::array();
  for (const json& event : events) {
    if (event["choices"].empty()) continue;
    text += event["choices"][0]["text"];
    for (const json& one : event["choices"][0]["logprobs"]["token_logprobs"])
      logprobs.push_back(one);
  }
  EXPECT_GT(events.size(), 10u);
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(logprobs, whole["choices"][0]["logprobs"]["token_logprobs"]);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events.back()["usage"], whole["usage"]);
  std::string said;
  for (const json& event : server_->events("chat/completions", chat("amax sc", 12)))
    said += event["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(said, server_->answer("chat/completions",
                                  chat("amax sc", 12))["choices"][0]["message"]["content"]);
}

TEST_F(Serve, log_probabilities_are_those_of_eval) {
  const std::string text = "the group moment scale amax step\nscale scale amax";
  const std::string file = folder_->put("held.txt", text);
  const auto done = test::run_program(
      *folder_, "eval --model " + (*folder_ / "run") + " --data " + file + " --json --quiet");
  ASSERT_EQ(done.code, 0) << done.err;
  json body = completion(text, 1);
  body.update({{"echo", true}, {"logprobs", 1}});
  const json choice = server_->answer("completions", body)["choices"][0];
  const json& values = choice["logprobs"]["token_logprobs"];
  ASSERT_EQ(values.size(), text.size() + 1);
  EXPECT_TRUE(values[0].is_null());
  double sum = 0;
  for (size_t i = 1; i < text.size(); ++i) sum += values[i].get<double>();
  EXPECT_NEAR(-sum / static_cast<double>(text.size() - 1), json::parse(done.out)[0]["nll"], 1e-6);
  EXPECT_EQ(choice["text"].get<std::string>().substr(0, text.size()), text);
  // The token that was written is the most probable one, with the same number.
  const json& top = choice["logprobs"]["top_logprobs"];
  EXPECT_EQ(top.back().begin().value(), values.back());
  EXPECT_EQ(choice["logprobs"]["text_offset"].back(), text.size());
  json talk = chat("amax sc", 3);
  talk.update({{"logprobs", true}, {"top_logprobs", 3}});
  const json content =
      server_->answer("chat/completions", talk)["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 3u);
  EXPECT_EQ(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"]);
}

// Bodies of requests that ask for what is not there: every field with values of every wrong type,
// unknown fields, and a body that ends at any byte.
std::vector<std::string> malformed(const json& good, const json& wrong) {
  std::vector<std::string> all;
  for (const auto& [field, values] : wrong.items()) {
    for (const json& value : values) {
      json body = good;
      body[field] = value;
      all.push_back(body.dump());
    }
  }
  const std::string whole = good.dump();
  for (size_t n = 0; n < whole.size(); n += 3) all.push_back(whole.substr(0, n));
  for (const char* text : {"[]", "1", "null", "\"x\"", "{\"model\": NaN}", "\xff\xfe", "{} {}"})
    all.emplace_back(text);
  return all;
}

TEST_F(Serve, refuses_pictures_where_the_model_sees_none) {
  json body = chat("", 2);
  body["messages"][0]["content"] = {
      {{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64,AAAA"}}}}};
  const auto result = server_->post("chat/completions", body);
  expect_error(result, 400, "a picture");
  EXPECT_THAT(result->body, HasSubstr("messages[0].content[0].type"));
  EXPECT_THAT(result->body, HasSubstr("takes no pictures"));
}

// A field or a path of other servers, or of the other kind of request.
TEST_F(Serve, names_what_was_meant_in_place_of_what_is_not_there) {
  const auto said = [&](const char* path, const json& body) {
    return server_->post(path, body)->body;
  };
  json body = completion("a", 2);
  body["max_completion_tokens"] = 2;
  EXPECT_THAT(said("completions", body), HasSubstr("the nearest is max_tokens"));
  body = completion("a", 2);
  body["min_tokens"] = 2;
  EXPECT_THAT(said("completions", body), testing::Not(HasSubstr("nearest")));
  EXPECT_THAT(said("completions", chat("a", 2)), HasSubstr("messages are of /v1/chat/completions"));
  EXPECT_THAT(said("chat/completions", completion("a", 2)),
              HasSubstr("a prompt is of /v1/completions"));
  EXPECT_THAT(said("responses", body), HasSubstr("there are /v1/models, /v1/completions"));
  const auto other = server_->client().Get("/v1/models/other");
  EXPECT_EQ(other->status, 404);
  EXPECT_THAT(other->body, HasSubstr("model_not_found"));
}

TEST_F(Serve, refuses_what_is_malformed_and_lives) {
  const json object = json::object(), list = {1};
  const json texts = {1, -1, 1.5, true, object, json::array({nullptr})};
  const json counts = {-1, 1.5, "1", true, object, list, 1e30};
  const json numbers = {-0.1, "1", true, object, list, 1e30};
  const json flags = {0, 1, "true", object, list};
  const json shared = {
      {"model", {1, nullptr, "other", object, list}},
      {"stop", {1, true, object, list, "", json::array({""})}},
      {"temperature", numbers},
      {"top_p", numbers},
      {"min_p", numbers},
      {"repetition_penalty", numbers},
      {"n", counts},
      {"seed", counts},
      {"max_tokens", counts},
      {"stream", flags},
      {"stream_options",
       {1, "x", list, {{"x", 1}}, {{"include_usage", 1}}, {{"include_usage", true}}}},
      {"presence_penalty", {0.5, "x"}},
      {"frequency_penalty", {0.5, object}},
      {"logit_bias", {{{"5", 1}}, 1}},
      {"user", {1, true, object, list}},
      {"service_tier", {1, list}},
      {"store", flags},
      {"metadata", {1, "x", list}},
      {"promt", {"x"}},
      {"beams", {1}}};
  json text = shared, talk = shared;
  text.update(
      {{"prompt", {1, true, object, json::array(), "", {1, "a"}, {{256}}, {{-1}}, {1.5}, nullptr}},
       {"logprobs", {-1, 21, true, "1"}},
       {"echo", flags},
       {"suffix", {"x", 1}},
       {"best_of", {2, "x"}}});
  const auto message = [](const json& role, const json& content) {
    return json::array({{{"role", role}, {"content", content}}});
  };
  talk.update({{"messages",
                {1,
                 "x",
                 object,
                 json::array(),
                 list,
                 message("tool", "x"),
                 message("user", 1),
                 message(1, "x"),
                 message("user", nullptr),
                 message("user", {{{"type", "image_url"}}}),
                 {{{"role", "user"}, {"content", "x"}, {"tool_calls", list}}}}},
               {"logprobs", {1, "x"}},
               {"top_logprobs", {1, -1, 21}},
               {"tools", {{{{"type", "function"}}}}},
               {"tool_choice", {"required"}},
               {"max_completion_tokens", {-1, 0, 1.5, 7}},
               {"response_format", {1, {{"type", "json_object"}}}},
               {"modalities", {{"audio"}}}});
  size_t n = 0;
  for (const auto& [path, bodies] :
       {std::pair("/v1/completions", malformed(completion("a", 2), text)),
        std::pair("/v1/chat/completions", malformed(chat("a", 2), talk))}) {
    for (const std::string& body : bodies) {
      const auto result = server_->client().Post(path, body, "application/json");
      ASSERT_TRUE(result) << body;
      EXPECT_TRUE(result->status >= 400 && result->status < 500) << result->status << " " << body;
      const json error = json::parse(result->body, nullptr, false);
      EXPECT_TRUE(error.is_object() && error["error"]["message"].is_string()) << result->body;
      ++n;
    }
  }
  EXPECT_GE(n, 200u);
  httplib::Client& client = server_->client();
  const std::string good = completion("a", 2).dump();
  expect_error(client.Post("/v1/completions", good, "text/plain"), 415, "type");
  const std::string twice = good.substr(0, good.size() - 1) + R"(,"max_tokens":3})";
  expect_error(client.Post("/v1/completions", twice, "application/json"), 400, "max_tokens twice");
  expect_error(client.Post("/v1/completions", std::string(70000, ' ') + good, "application/json"),
               413, "long");
  const std::string packed(70000, ' ');
  expect_error(client.Post(
                   "/v1/completions",
                   [&](size_t, httplib::DataSink& sink) {
                     sink.write(packed.data(), packed.size());
                     sink.done();
                     return true;
                   },
                   "application/json"),
               413, "long, in chunks");
  int pieces = 0;  // of one who is still sending when it is known that all is too much
  expect_error(client.Post(
                   "/v1/completions",
                   [&](size_t, httplib::DataSink& sink) {
                     if (pieces > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
                     if (!sink.write(packed.data(), packed.size())) return false;
                     if (++pieces == 4) sink.done();
                     return true;
                   },
                   "application/json"),
               413, "longer, in pieces");
  const httplib::MultipartFormDataItems form = {{"file", packed, "a.txt", "text/plain"}};
  expect_error(client.Post("/v1/completions", form), 415, "a form");
  httplib::Client fresh("127.0.0.1", server_->port());
  expect_error(fresh.Get("/v1/completions"), 405, "GET");
  expect_error(fresh.Post("/v1/models", good, "application/json"), 405, "POST");
  expect_error(fresh.Get("/v2"), 404, "path");
  expect_error(fresh.Put("/v1/completions", good, "application/json"), 405, "PUT");
  expect_error(fresh.Get("/v1/models", {{"Host", "elsewhere.example"}}), 403, "host");
  expect_error(fresh.Get("/v1/models", {{"Origin", "http://elsewhere.example"}}), 403, "origin");
  expect_error(server_->post("embeddings", {{"model", "run"}, {"input", "a"}}), 400, "decoder");
  EXPECT_TRUE(server_->child().is_running());
  json idle = completion("a", 2);
  idle.update({{"tools", json::array()}, {"metadata", {{"run", "1"}}}, {"store", false}});
  server_->answer("completions", idle);
}

TEST_F(Serve, refuses_prompts_beyond_the_context) {
  const auto long_prompt = server_->post("completions", completion(std::string(100, 'a'), 1));
  expect_error(long_prompt, 400, "prompt");
  EXPECT_EQ(json::parse(long_prompt->body)["error"]["code"], "context_length_exceeded");
  expect_error(server_->post("completions", completion(std::string(90, 'a'), 7)), 400, "tokens");
  const json usual = {{"model", "run"}, {"prompt", std::string(90, 'a')}};
  EXPECT_EQ(server_->answer("completions", usual)["usage"]["completion_tokens"], 6);
  expect_error(server_->post("chat/completions", chat(std::string(100, 'a'), 1)), 400, "messages");
}

TEST_F(Serve, many_clients_get_what_each_gets_alone) {
  constexpr int kClients = 64, kKinds = 8;
  std::vector<json> alone, together(kClients);
  const auto body = [](int i) {
    return completion(std::string("step amax group").substr(static_cast<size_t>(i % kKinds)),
                      20 + i % kKinds);
  };
  for (int i = 0; i < kKinds; ++i)
    alone.push_back(server_->answer("completions", body(i))["choices"]);
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      httplib::Client client("127.0.0.1", server_->port());
      client.set_read_timeout(60);
      const auto result = client.Post("/v1/completions", body(i).dump(), "application/json");
      if (result) together[static_cast<size_t>(i)] = json::parse(result->body)["choices"];
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kClients; ++i) EXPECT_EQ(together[i], alone[i % kKinds]) << i;
  json many = completion("a", 1);
  many["prompt"] = json(99, "a");
  expect_error(server_->post("completions", many), 400, "more than the queue and the batch");
}

TEST_F(Serve, a_slow_reader_holds_nobody_up_and_loses_nothing) {
  json body = completion("amax sc", 80);
  body.update({{"stream", true}, {"n", 4}});
  httplib::Request slow;
  slow.method = "POST";
  slow.path = "/v1/completions";
  slow.body = body.dump();
  slow.set_header("Content-Type", "application/json");
  std::string got;
  bool others_are_served = false;
  slow.content_receiver = [&](const char* data, size_t n, uint64_t, uint64_t) {
    if (got.empty()) {
      ServeChild& server = *server_;
      httplib::Client other("127.0.0.1", server.port());
      const auto result =
          other.Post("/v1/completions", completion("a", 2).dump(), "application/json");
      others_are_served = result && result->status == 200;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    got.append(data, n);
    return true;
  };
  httplib::Client client("127.0.0.1", server_->port());
  client.set_socket_options([](socket_t socket) {
    const int small = 2048;
    ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  });
  EXPECT_TRUE(client.send(slow));
  EXPECT_TRUE(others_are_served);
  EXPECT_TRUE(got.ends_with("data: [DONE]\n\n"));
  std::string text;
  std::istringstream lines(got);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: {")) continue;
    const json choice = json::parse(line.substr(6))["choices"][0];
    if (choice["index"] == 3) text += choice["text"];
  }
  EXPECT_EQ(text, server_->answer("completions", completion("amax sc", 80))["choices"][0]["text"]);
}

TEST_F(Serve, asks_for_its_token_and_ends_with_what_runs) {
  ServeChild guarded(*folder_, "run", {"--token", "s3cret", "--name", "mine", "--host", "0.0.0.0"});
  httplib::Client& client = guarded.client();
  for (const char* wrong :
       {"", "Bearer", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "s3cret"})
    expect_error(client.Get("/v1/models", {{"Authorization", wrong}}), 401, wrong);
  expect_error(guarded.post("completions", completion("a", 1)), 401, "post");
  expect_error(client.Get("/"), 401, "page");
  const std::string pair = "anybody:s3cret";
  const std::string basic = encode_base64(std::as_bytes(std::span(pair)));
  for (const std::string& right : {std::string("Bearer s3cret"), "Basic " + basic})
    EXPECT_EQ(client.Get("/v1/models", {{"Authorization", right}})->status, 200) << right;
  // SIGTERM after the first part of a stream: it comes to its end.
  json body = completion("amax sc", 80);
  body.update({{"stream", true}, {"model", "mine"}});
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = body.dump();
  request.headers = {{"Content-Type", "application/json"}, {"Authorization", "Bearer s3cret"}};
  std::string got;
  request.content_receiver = [&](const char* data, size_t n, uint64_t, uint64_t) {
    if (got.empty()) guarded.child().signal(SIGTERM);
    got.append(data, n);
    return true;
  };
  EXPECT_TRUE(client.send(request));
  EXPECT_THAT(got, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_TRUE(got.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(guarded.child().code_within(20), 128 + SIGTERM);
  const auto open = test::run_program(*folder_, "serve --model x --host 0.0.0.0");
  EXPECT_EQ(open.code, 2);
  EXPECT_THAT(open.err, HasSubstr("--host 0.0.0.0: expected --token"));
}

TEST_F(Serve, gives_the_vectors_of_embed) {
  const test::ScratchFolder folder;
  const std::string texts = folder.put("texts.txt", "one two\nthe third text is longer\n");
  const std::string learned = folder.put("t.txt", test::easy_text(3000));
  const std::string yaml =
      test::encoder_yaml(folder, ", seq: 28", ", train: [" + learned + "], val: [" + learned + "]");
  const auto trained = test::train_encoder(folder, yaml, "--set train.steps=2");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto embedded =
      test::run_program(folder, "embed --quiet --model " + (folder / "run") + " --texts " + texts +
                                    " --out " + (folder / "x.npy"));
  ASSERT_EQ(embedded.code, 0) << embedded.err;
  const std::string npy = posix_files().read_text(folder / "x.npy");
  ServeChild server(folder, "run");
  const json body = {{"model", "run"}, {"input", {"one two", "the third text is longer"}}};
  const json rows = server.answer("embeddings", body)["data"];
  std::vector<float> expected(2 * 32);
  std::memcpy(expected.data(), npy.data() + npy.size() - 4 * expected.size(), 4 * expected.size());
  std::vector<float> got = rows[0]["embedding"];
  for (const float x : rows[1]["embedding"].get<std::vector<float>>()) got.push_back(x);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-6) << i;
  json packed = body;
  packed["encoding_format"] = "base64";
  const std::string bytes = *decode_base64(
      server.answer("embeddings", packed)["data"][1]["embedding"].get<std::string>());
  EXPECT_EQ(std::memcmp(bytes.data(), got.data() + 32, 4 * 32), 0);
  for (const json& wrong : {json(1), json(), json(""), json::array(), json({"a", ""}), json({1})})
    expect_error(server.post("embeddings", {{"model", "run"}, {"input", wrong}}), 400, "input");
  const auto longer =
      server.post("embeddings", {{"model", "run"}, {"input", std::string(99, 'a')}});
  expect_error(longer, 400, "expected texts of at most");
  expect_error(server.post("embeddings", {{"model", "other"}, {"input", "a"}}), 404, "model");
  const auto text = server.post("completions", completion("a", 1));
  expect_error(text, 400, "an encoder");
  EXPECT_THAT(text->body, HasSubstr("is an encoder and writes no text"));
}

}  // namespace
}  // namespace octet::serve_test
