// A tiny model that sees pictures, as a user trains, asks and exports it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "backends/cpu/backend.h"
#include "base/base64.h"
#include "cli/encoders/encoder_run.h"
#include "cli/serve/serve_child.h"
#include "infer/model_source.h"
#include "infer/text_model.h"
#include "unit/infer/put_arrays.h"
#include "unit/train/tiny_llava.h"

namespace octet::vision_pictures_in_texts_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;

Outcome train(const ScratchFolder& folder, const std::string& more) {
  test::put_conversations(folder, 8);
  const std::string path = folder.put("llava.yaml", test::llava_yaml(folder, "bf16"));
  return run_program(folder, "train " + path + " --quiet " + more);
}

// The same question about pictures that differ.
void put_questions(const ScratchFolder& folder) {
  folder.put("questions.jsonl",
             R"({"image": "gray.png", "question": "Q?", "answer": "Gray.", "type": "one"})"
             "\n"
             R"({"image": "full_color.jpeg", "question": "Q?", "answers": ["red", "blue"]})"
             "\n"
             R"({"images": ["full_color.jpeg", "gray.png"], "question": "Q?", "answer": "both"})"
             "\n");
}

// What a folder's file of tensors says of each.
json tensors_of(const std::string& folder) {
  const std::vector<std::byte> bytes = posix_files().read_bytes(folder + "/model.safetensors");
  uint64_t n = 0;
  std::memcpy(&n, bytes.data(), sizeof(n));
  return json::parse(std::string(reinterpret_cast<const char*>(bytes.data()) + sizeof(n), n));
}

// Quantizes the run but for its projector, into "q", by its own conversations.
void expect_quantized(const ScratchFolder& folder) {
  const std::string call =
      "ptq --quiet --json --format e4m3 --method max --samples 6 --keep "
      "'projector.*' --model " +
      (folder / "run") + " --calib ";
  const std::string chat = folder / "chat.jsonl";
  const Outcome done =
      run_program(folder, call + chat + " --eval " + chat + " --out " + (folder / "q"));
  ASSERT_EQ(done.code, 0) << done.err;
  const json found = json::parse(done.out);
  EXPECT_EQ(found.at("models")[0].at("rows"), 8);
  std::set<std::string> layers;
  for (const json& row : found.at("layers")) layers.insert(row.at("layer"));
  EXPECT_EQ(layers.size(), 2U * 6 + 2 * 7) << found.at("layers").dump();
  EXPECT_TRUE(layers.contains("vision.layers.0.q_proj") &&
              layers.contains("text.layers.1.down_proj"));
  const json tensors = tensors_of(folder / "q"), before = tensors_of(folder / "out");
  const std::string layer = "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.";
  EXPECT_EQ(tensors.at(layer + "weight").at("dtype"), "F8_E4M3");
  EXPECT_TRUE(tensors.contains(layer + "input_scale"));
  for (const char* kept :
       {"multi_modal_projector.linear_1.weight", "multi_modal_projector.linear_2.weight",
        "vision_tower.vision_model.embeddings.patch_embedding.weight",
        "language_model.lm_head.weight"})
    EXPECT_EQ(tensors.at(kept).at("dtype"), before.at(kept).at("dtype")) << kept;
  const std::string texts =
      folder.put("texts.jsonl", R"({"messages": [{"role": "user", "content": "Q?"}, )"
                                R"({"role": "assistant", "content": "none"}]})"
                                "\n");
  const std::pair<std::string, std::string> cases[] = {
      {texts, "expected conversations with pictures, by which the inputs of the tower"},
      {folder.put("plain.txt", "text"), "expected rows that kind llava is evaluated on"}};
  for (const auto& [calib, error] : cases) {
    const Outcome refused = run_program(folder, call + calib + " --out " + (folder / "none"));
    EXPECT_NE(refused.code, 0) << calib;
    EXPECT_THAT(refused.err, testing::HasSubstr(error)) << calib;
  }
}

TEST(PicturesInTexts, are_learned_by_heart_asked_for_and_exported) {
  const ScratchFolder folder;
  const Outcome trained =
      train(folder, "--set train.steps=110 --set optim.lr=8.0e-3 --set train.save_every=110");
  ASSERT_EQ(trained.code, 0) << trained.err;
  put_questions(folder);
  const std::string tasks =
      " --json --max-new-tokens 8 --tasks vqa:" + (folder / "questions.jsonl");
  const auto accuracy = [&](const std::string& model) {
    const Outcome outcome = run_program(folder, "eval --model " + model + tasks);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  const json rows = accuracy(folder / "run");
  ASSERT_EQ(rows.size(), 3U) << rows.dump();
  EXPECT_EQ(rows[0].at("type"), "all");
  EXPECT_EQ(rows[0].at("n"), 3);
  EXPECT_EQ(rows[0].at("acc"), 1.0) << rows.dump();
  EXPECT_EQ(rows[1].at("type"), "one");
  EXPECT_EQ(rows[2].at("type"), "other");
  const Outcome answered = run_program(folder, "generate --model " + (folder / "run") +
                                                   " --image " + (folder / "full_color.jpeg") +
                                                   " --chat --prompt 'Q?' --max-tokens 8");
  EXPECT_EQ(answered.out, "blue\n") << answered.err;
  const Outcome exported =
      run_program(folder, "convert " + (folder / "run") + " " + (folder / "out"));
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(accuracy(folder / "out")[0].at("acc"), 1.0);
  expect_quantized(folder);
  EXPECT_EQ(accuracy(folder / "q")[0].at("acc"), 1.0);
  const std::string processor = folder / "out/processor_config.json";
  EXPECT_EQ(json::parse(posix_files().read_text(processor)).at("patch_size"), 8);
  const std::pair<std::string, std::string> cases[] = {
      {"--image gray.png --prompts x.txt", "--image: expected it with --prompt"},
      {"--image " + (folder / "none.png") + " --prompt Q", "none.png"},
      {"--chat --prompt '<image> Q'", "--chat: expected no token 256"},
      {"--image " + (folder / "gray.png") + " --prompt '<image> <image>'",
       "expected a picture for each <image> of the prompt, 2, got 1"},
      {"--image " + (folder / "gray.png") + " --prompt Q --max-tokens 999",
       "--max-tokens: expected at most"}};
  for (const auto& [arguments, error] : cases) {
    const Outcome refused =
        run_program(folder, "generate --model " + (folder / "run") + " " + arguments);
    EXPECT_NE(refused.code, 0) << arguments;
    EXPECT_THAT(refused.err, testing::HasSubstr(error)) << arguments;
  }
}

// Arrays of two rows, one with a picture of four rows in the model, evaluated by a run and a
// folder.
TEST(PicturesInTexts, are_evaluated_as_arrays) {
  const ScratchFolder folder;
  const Outcome trained = train(folder, "--set train.steps=1 --set train.export=f32");
  ASSERT_EQ(trained.code, 0) << trained.err;
  constexpr int64_t kRows = 2, kSeq = 64;
  std::vector<int32_t> tokens(kRows * kSeq, 65), labels(kRows * kSeq, 66), merged(kRows * kSeq);
  std::iota(merged.begin(), merged.end(), 0);
  for (size_t i = 0; i < 4; ++i) {
    tokens[1 + i] = 256;
    merged[1 + i] = static_cast<int32_t>(kRows * kSeq + static_cast<int64_t>(i));
  }
  const auto evaluate = [&](const std::string& model, int64_t n_pictures) {
    const int64_t n_pixels = kRows * n_pictures * 3 * 16 * 16;
    std::vector<float> pixels(static_cast<size_t>(n_pixels));
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::sin(static_cast<float>(i));
    const std::string path = folder / "rows.safetensors";
    test::put_arrays(
        path, {test::array_of("tokens", SafeDtype::i32, {kRows, kSeq}, tokens),
               test::array_of("labels", SafeDtype::i32, {kRows, kSeq}, labels),
               test::array_of("merged_rows", SafeDtype::i32, {kRows, kSeq}, merged),
               test::array_of("pictures", SafeDtype::f32, {kRows, n_pictures, 3, 16, 16}, pixels)});
    const Outcome outcome = run_program(
        folder, "eval --json --seq 64 --recipe fp32 --model " + model + " --data " + path);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out)[0].at("nll").get<double>() : 0.0;
  };
  EXPECT_GT(evaluate(folder / "run", 2), 0);
  EXPECT_GT(evaluate(folder / "run/export", 1), 0);
}

json part(const std::string& url) {
  return {{"type", "image_url"}, {"image_url", {{"url", url}}}};
}

json inline_part(const ScratchFolder& folder, const char* name) {
  const std::string file = posix_files().read_text(folder / name);
  return part("data:image/any;base64," + encode_base64(std::as_bytes(std::span(file))));
}

// A question behind these pictures.
json asked(const std::vector<json>& pictures, const std::string& text = "Q?") {
  json content = pictures;
  content.push_back({{"type", "text"}, {"text", text}});
  return {{"model", "run"},
          {"messages", {{{"role", "user"}, {"content", content}}}},
          {"max_tokens", 8},
          {"temperature", 0}};
}

std::string generated(const ScratchFolder& folder, const std::vector<const char*>& names,
                      const std::string& prompt = "Q?") {
  std::string arguments = "generate --chat --max-tokens 8 --model " + (folder / "run");
  for (const char* name : names) arguments += " --image " + (folder / name);
  const Outcome outcome = run_program(folder, arguments + " --prompt '" + prompt + "'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.out.substr(0, outcome.out.size() - 1);
}

TEST(PicturesInTexts, are_sent_to_a_server_which_answers_as_generate_does) {
  std::signal(SIGPIPE, SIG_IGN);
  const ScratchFolder folder;
  const Outcome trained =
      train(folder, "--set train.steps=110 --set optim.lr=8.0e-3 --set model.seq=200");
  ASSERT_EQ(trained.code, 0) << trained.err;
  test::ServeChild server(folder, "run", {"--batch", "2"});
  const json gray = inline_part(folder, "gray.png");
  const json blue = inline_part(folder, "full_color.jpeg");
  const auto said = [](const json& answer) {
    return answer.at("choices")[0].at("message").at("content").get<std::string>();
  };
  // An entry that a text with pictures left is another text's, with others and with none.
  const std::pair<std::vector<json>, std::vector<const char*>> cases[] = {
      {{gray}, {"gray.png"}},
      {{blue}, {"full_color.jpeg"}},
      {{blue, gray}, {"full_color.jpeg", "gray.png"}},
      {{}, {}}};
  for (const auto& [parts, names] : cases)
    EXPECT_EQ(said(server.answer("chat/completions", asked(parts))), generated(folder, names));
  EXPECT_EQ(generated(folder, {"full_color.jpeg"}), "blue");
  const json models = json::parse(server.client().Get("/v1/models")->body);
  EXPECT_EQ(models.at("data")[0].at("max_images"), 2);
  // A prompt is read in pieces of 128 tokens, between which another text goes on: here the first
  // piece ends within a picture.
  const std::string front(117, 'x');
  json late = asked({});
  late["messages"][0]["content"] = {
      {{"type", "text"}, {"text", front}}, blue, {{"type", "text"}, {"text", "Q?"}}};
  json beside = asked({gray}, "Tell me of it, at length.");
  beside["max_tokens"] = 60;
  std::string other;
  std::thread client([&] {
    httplib::Client second("127.0.0.1", server.port());
    const auto result = second.Post("/v1/chat/completions", beside.dump(), "application/json");
    if (result) other = result->body;
  });
  const std::string answer = said(server.answer("chat/completions", late));
  client.join();
  EXPECT_EQ(answer, generated(folder, {"full_color.jpeg"}, front + "\n<image>\nQ?"));
  EXPECT_EQ(said(json::parse(other)), said(server.answer("chat/completions", beside)));
}

// A prompt whose piece ends with a picture: the rest of a call's row, and calls of other texts
// before the next piece, leave the picture's last row as it is.
TEST(PicturesInTexts, stay_where_they_are_while_other_texts_go_on) {
  const ScratchFolder folder;
  ASSERT_EQ(train(folder, "--set train.steps=1").code, 0);
  ModelSource source = find_model_source(posix_files(), folder / "run");
  source.recipe = "fp32";
  source.spec.images = 1;
  cpu::Backend backend = cpu::make_backend(1, cpu::detect_isa(), cpu::RowSums::same);
  const TextMachine machine{posix_files(), *backend.device, *backend.catalogue};
  EntryPictures pictures{.pixels = {}, .rows = {-1, 0, 1, 2, 3, -1}};
  for (int i = 0; i < 3 * 16 * 16; ++i) pictures.pixels.push_back(std::sin(static_cast<float>(i)));
  const std::vector<int32_t> prompt = {65, 256, 256, 256, 256, 66}, other(21, 67);
  const auto logits_behind = [&](int64_t n_piece, bool goes_on) {
    const auto model = make_cached_model(source, {.n_entries = 2, .capacity = 32}, machine);
    model->read_pictures(0, pictures);
    model->fill(std::vector<TextChunk>{{0, 0, std::span(prompt).first(n_piece)}});
    std::vector<float> logits;
    const auto keep = [&](const TextChunk&, int64_t, std::span<const float> row) {
      logits.assign(row.begin(), row.end());
    };
    if (goes_on) {
      model->fill(std::vector<TextChunk>{{1, 0, std::span(other).first(20)}});
      model->logits(std::vector<TextChunk>{{1, 20, std::span(other).last(1)}}, keep);
    }
    model->logits(std::vector<TextChunk>{{0, 5, std::span(prompt).last(1)}}, keep);
    return logits;
  };
  const std::vector<float> whole = logits_behind(6, false);
  EXPECT_EQ(logits_behind(5, false), whole);
  EXPECT_EQ(logits_behind(5, true), whole);
}

TEST(PicturesInTexts, that_a_server_cannot_read_are_refused_by_their_part) {
  const ScratchFolder folder;
  ASSERT_EQ(train(folder, "--set train.steps=1").code, 0);
  test::ServeChild server(folder, "run", {"--images", "1"});
  const json gray = inline_part(folder, "gray.png");
  json in_answer = asked({gray}), loud = gray, no_url = gray;
  in_answer["messages"][0]["role"] = "assistant";
  loud["image_url"]["detail"] = "loud";
  no_url["image_url"] = "data:image/png;base64,AAAA";
  const std::string field = "messages[0].content[0]";
  const std::tuple<json, std::string, std::string> cases[] = {
      {asked({part("https://a.example/x.png")}), field + ".image_url.url", "nothing is fetched"},
      {asked({part("file:///etc/hostname")}), field + ".image_url.url", "nothing is fetched"},
      {asked({part("gray.png")}), field + ".image_url.url", "nothing is fetched"},
      {asked({part("data:image/png;base64,!!")}), field + ".image_url.url", "no base64"},
      {asked({part("data:image/png,AAAA")}), field + ".image_url.url", "not base64"},
      {asked({part("data:image/png;base64,AAAA")}), field + ".image_url", "expected a PNG or"},
      {asked({part("data:image/png;base64,")}), field + ".image_url.url", "no base64"},
      {asked({gray, gray}), "messages[0].content[1].image_url", "at most 1 pictures"},
      {asked({loud}), field + ".image_url.detail", "none or \"auto\""},
      {asked({no_url}), field + ".image_url", "an object with a url"},
      {asked({{{"type", "input_audio"}}}), field + ".type", "text or image_url"},
      {asked({}, "an <image> here"), field + ".text", "a text without <image>"},
      {in_answer, field + ".type", "the role is assistant"}};
  for (const auto& [body, param, message] : cases) {
    const auto result = server.post("chat/completions", body);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 400) << result->body;
    const json error = json::parse(result->body).at("error");
    EXPECT_EQ(error.at("param"), param) << result->body;
    EXPECT_THAT(error.at("message").get<std::string>(), testing::HasSubstr(message));
  }
  const json completion = {{"model", "run"}, {"prompt", {256, 65}}};
  const auto refused = server.post("completions", completion);
  EXPECT_EQ(refused->status, 400);
  EXPECT_THAT(refused->body, testing::HasSubstr("prompt: expected no <image>"));
  EXPECT_EQ(server.post("chat/completions", asked({gray}))->status, 200);
}

TEST(PicturesInTexts, go_on_with_the_same_bits) {
  const ScratchFolder folder;
  test::put_conversations(folder);
  test::expect_same_bits_resumed(folder, test::llava_yaml(folder, "coat"));
}

TEST(PicturesInTexts, end_the_run_by_record_and_path_where_one_is_broken) {
  const ScratchFolder folder;
  test::put_conversations(folder);
  folder.put("gray.png", "\x89PNG\r\n\x1a\n");
  const std::string path = folder.put("llava.yaml", test::llava_yaml(folder, "bf16"));
  const Outcome outcome = run_program(folder, "train " + path + " --quiet");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, testing::ContainsRegex("chat\\.jsonl:[0-9]+: '.*gray\\.png'"));
}

}  // namespace
}  // namespace octet::vision_pictures_in_texts_test
