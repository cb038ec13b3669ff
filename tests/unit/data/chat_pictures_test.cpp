#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/chat_pictures.h"
#include "data/chat_records.h"
#include "data/picture_rows.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_chat_pictures_test {
namespace {

using test::error_of;
using test::ScratchFolder;

const ChatFields kFields = {.image_mark = "<image>"};

std::string turn(const std::string& content) {
  return R"({"messages": [{"role": "user", "content": )" + content +
         R"(}, {"role": "assistant", "content": "a cat"}])";
}

TEST(ChatPictures, come_from_parts_marks_and_lists) {
  const struct {
    std::string record, content;
    std::vector<ChatPicture> pictures;
  } cases[] = {
      {turn(R"([{"type": "image", "path": "a.png"}, {"type": "text", "text": "What?"}])") + "}",
       R"([{"type":"image","text":"<image>"},{"type":"text","text":"What?"}])",
       {{.path = "a.png"}}},
      {turn(R"([{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}])") + "}",
       R"([{"type":"image","text":"<image>"}])",
       {{.bytes = "hi"}}},
      {turn(R"("<image>\n<image> Which?")") + R"(, "images": ["b.png", {"path": "c/d.jpg"}]})",
       R"("<image>\n<image> Which?")",
       {{.path = "b.png"}, {.path = "c/d.jpg"}}},
      {turn(R"([{"type": "image"}, {"type": "image", "base64": "aGk="}])") +
           R"(, "image": "b.png"})",
       R"([{"type":"image","text":"<image>"},{"type":"image","text":"<image>"}])",
       {{.path = "b.png"}, {.bytes = "hi"}}},
      {turn(R"([{"type": "image", "index": 1}, {"type": "image", "index": 0}, {"type": "image",)"
            R"( "index": 1, "text": null}])") +
           R"(, "images": ["b.png", "c.png"]})",
       R"([{"type":"image","text":"<image>"},{"type":"image","text":"<image>"},)"
       R"({"type":"image","text":"<image>"}])",
       {{.path = "c.png"}, {.path = "b.png"}, {.path = "c.png"}}},
      {turn(R"("no picture")") + "}", R"("no picture")", {}},
  };
  for (const auto& [text, content, pictures] : cases) {
    const ChatRecord record = read_chat_record(text, kFields);
    EXPECT_EQ(record.pictures, pictures) << text;
    EXPECT_EQ(record.context["messages"][0]["content"].dump(), content);
  }
  const ChatRecord share = read_chat_record(
      R"({"image": "x.png", "conversations": [{"from": "human", "value": "<image>\nWhat?"},)"
      R"({"from": "gpt", "value": "A dog."}]})",
      kFields);
  EXPECT_EQ(share.format, "ShareGPT");
  EXPECT_EQ(share.pictures, (std::vector<ChatPicture>{{.path = "x.png"}}));
}

TEST(ChatPictures, that_do_not_fit_their_places_are_refused_by_name) {
  const struct {
    std::string record, error;
  } cases[] = {
      {turn(R"("<image>")") + "}", "more places for pictures than pictures"},
      {turn(R"([{"type": "image", "index": 1}])") + R"(, "images": ["b.png"]})",
       "an index of no picture of the list"},
      {turn(R"([{"type": "image", "index": -1}])") + R"(, "images": ["b.png"]})",
       "an index of no picture of the list"},
      {turn(R"([{"type": "image", "index": 1}])") + R"(, "images": ["b.png", "c.png"]})",
       "pictures that no place is for"},
      {turn(R"("What?")") + R"(, "image": "a.png"})", "pictures that no place is for"},
      {turn(R"([{"type": "image", "url": "http://x/a.png"}])") + "}",
       "a picture at an address, which is not fetched"},
      {turn(R"([{"type": "image", "path": ""}])") + "}", "a picture without a path"},
      {turn(R"([{"type": "image", "base64": "%%"}])") + "}", "a picture that is no base64"},
      {turn(R"([{"type": "image", "path": 3}])") + "}",
       "a picture that is neither a path nor data"},
      {turn(R"([{"type": "video", "path": "a.mp4"}])") + "}",
       "a part of a message of the type 'video', which is not text"},
      {R"({"text": "a", "image": "a.png"})", "a picture beside a text"},
      {R"({"image": "a.png", "messages": [{"role": "user", "content": "a"},)"
       R"({"role": "assistant", "content": "<image>"}]})",
       "a picture in an answer"},
  };
  for (const auto& one : cases)
    EXPECT_EQ(error_of([&] { read_chat_record(one.record, kFields); }), one.error) << one.record;
  EXPECT_EQ(error_of([&] { read_chat_record(turn(R"([{"type": "image"}])") + "}", {}); }),
            "a part of a message of the type 'image', which is not text");
  EXPECT_EQ(error_of([&] { read_chat_record(turn(R"("a")") + R"(, "image": "a.png"})", {}); }),
            "'image', which is not text");
}

TEST(ChatPictures, texts_become_parts_for_templates_that_take_nothing_else) {
  OrderedJson messages = OrderedJson::parse(
      R"([{"role": "user", "content": "see <image>\nand <image>"}, {"role": "x", "content": ""}])");
  split_into_parts(messages, "<image>");
  EXPECT_EQ(messages[0]["content"].dump(),
            R"([{"type":"text","text":"see "},{"type":"image","text":"<image>"},)"
            R"({"type":"text","text":"and "},{"type":"image","text":"<image>"}])");
  EXPECT_EQ(messages[1]["content"].dump(), R"([{"type":"text","text":""}])");
}

PictureRowsOptions picture_options_of(int64_t n_pictures) {
  return {.labels = token_labels_input(),
          .pictures = pictures_input({n_pictures, 3, 4, 4}),
          .image_token = 9,
          .rows_per_picture = 3,
          .seq = 12};
}

TEST(PictureRows, stand_in_the_place_of_a_pictures_token) {
  const PlacedTokens placed =
      place_rows({1, 9, 2, 9, 3}, {0, 1, 0, 0, 1}, 2, picture_options_of(2));
  EXPECT_EQ(placed.ids, (std::vector<int32_t>{1, 9, 9, 9, 2, 9, 9, 9, 3}));
  EXPECT_EQ(placed.rows, (std::vector<int32_t>{-1, 0, 1, 2, -1, 3, 4, 5, -1}));
  EXPECT_EQ(placed.is_trained, (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(error_of([] {
              place_rows({1, 9}, {0, 0}, 2, picture_options_of(2));
            }),
            "expected a token 9 (model.image_token) for each of 2 pictures, got 1");
  // The second row of two, of rows of four tokens and six rows of pictures.
  std::vector<int32_t> merged(4);
  write_merged_rows(std::vector<int32_t>{-1, 3, 5, -1}, 4, 8, 6, merged);
  EXPECT_EQ(merged, (std::vector<int32_t>{4, 17, 19, 7}));
}

class OneSource : public TokenSource {
 public:
  int64_t n_tokens() const override { return 4; }
  uint64_t identity() const override { return 1; }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    const int32_t all[] = {1, 9, 2, 3};
    const uint8_t none[] = {kDocumentStart | kNotTrained, kNotTrained, kNotTrained, 0};
    std::copy_n(all + first, tokens.size(), tokens.begin());
    std::copy_n(none + first, flags.size(), flags.begin());
  }
};

ChatData chat_of(const ScratchFolder& folder, std::vector<ChatPicture> pictures) {
  ChatData chat{.source = std::make_shared<OneSource>(), .samples = {}, .report = {}};
  chat.samples.push_back({.place = (folder / "a.jsonl") + ":7",
                          .n_tokens = 4,
                          .n_trained = 1,
                          .pictures = std::move(pictures)});
  return chat;
}

TEST(PictureRows, write_tokens_labels_places_and_pixels) {
  const ScratchFolder folder;
  const std::string fixtures = OCTET_SOURCE_DIR "/tests/fixtures/images/";
  folder.put("gray.png", posix_files().read_text(fixtures + "gray.png"));
  const auto rows = picture_rows(posix_files(), chat_of(folder, {{.path = "gray.png"}}),
                                 picture_options_of(2), {});
  Batch batch{.batch = 2, .seq = 7, .lengths = {0, 0}};
  for (const InputSpec& input : rows->inputs()) batch.add(input);
  rows->write(0, {.row = 1}, batch);
  using testing::ElementsAre;
  const auto second = [](const std::vector<int32_t>& all) {
    return std::vector<int32_t>(all.begin() + 7, all.end());
  };
  EXPECT_THAT(second(batch.ints("tokens")), ElementsAre(1, 9, 9, 9, 2, 0, 0));
  EXPECT_THAT(second(batch.ints("labels")), ElementsAre(-1, -1, -1, -1, 3, -1, -1));
  EXPECT_THAT(second(batch.ints("merged_rows")), ElementsAre(7, 20, 21, 22, 11, 12, 13));
  EXPECT_EQ(batch.lengths, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(rows->n_counted(0, {}, token_labels_input()), 1);
  std::vector<float> pixels(48);
  read_picture(posix_files(), {{.path = fixtures + "gray.png"}, "a:1"}, {.channels = 3, .size = 4},
               {}, pixels);
  const std::vector<float>& all = batch.reals("pictures");
  EXPECT_THAT(std::vector<float>(all.begin() + 96, all.begin() + 144),
              testing::ElementsAreArray(pixels));
  EXPECT_THAT(std::vector<float>(all.begin() + 144, all.end()), testing::Each(0.0f));
}

TEST(PictureRows, name_record_and_path_of_what_is_missing_or_broken) {
  const ScratchFolder folder;
  folder.put("broken.png", "\x89PNG\r\n\x1a\nnothing");
  const auto open = [&](const ChatPicture& picture, int64_t seq = 12) {
    PictureRowsOptions options = picture_options_of(1);
    options.seq = seq;
    options.too_long = TooLong::split;
    return picture_rows(posix_files(), chat_of(folder, {picture}), options, {});
  };
  const std::string place = (folder / "a.jsonl") + ":7";
  EXPECT_EQ(error_of([&] { open({.path = "none.png"}); }),
            "[data] " + place + ": '" + (folder / "none.png") +
                "': expected a picture, got no such file");
  EXPECT_THAT(error_of([&] { open({.path = "broken.png"}, 3); }),
              testing::StartsWith("[data] " + place + ": expected at most 3 tokens"));
  for (const ChatPicture& picture :
       {ChatPicture{.path = "broken.png"}, ChatPicture{.bytes = "no picture"}}) {
    const auto rows = open(picture);
    Batch batch{.batch = 1, .seq = 7, .lengths = {0}};
    for (const InputSpec& input : rows->inputs()) batch.add(input);
    const std::string error = error_of([&] { rows->write(0, {}, batch); });
    EXPECT_THAT(error, testing::HasSubstr(place)) << error;
    const bool is_file = !picture.path.empty();
    EXPECT_THAT(error, testing::HasSubstr(is_file ? "broken.png" : "data of a picture")) << error;
  }
}

}  // namespace
}  // namespace octet::data_chat_pictures_test
