#include "data/images/image_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::data_image_source_test {
namespace {

using namespace std::string_literals;
using test::error_of;
using test::ScratchFolder;

std::string fixture(const std::string& name) {
  return posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/images/" + name);
}

std::shared_ptr<const ImageSource> opened(const std::string& path, Log log = {}) {
  return open_images(posix_files(), path, {.log = std::move(log)});
}

std::string pack_record(int label, const std::string& bytes) {
  const auto n = static_cast<uint32_t>(bytes.size());
  return std::string(1, static_cast<char>(label)) +
         std::string(reinterpret_cast<const char*>(&n), sizeof(n)) + bytes;
}

std::string idx(const std::vector<uint32_t>& shape, const std::string& data, int type = 8) {
  std::string bytes = "\0\0"s + static_cast<char>(type) + static_cast<char>(shape.size());
  for (const uint32_t extent : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  }
  return bytes + data;
}

TEST(ImageSource, a_pack_gives_labels_without_decoding_and_pictures_when_asked) {
  const ScratchFolder folder;
  const std::string records = pack_record(3, fixture("rgb.png")) + pack_record(9, "no picture") +
                              pack_record(0, fixture("gray.jpg"));
  const auto source = opened(folder.put("a.pack", records));
  ASSERT_EQ(source->n_images(), 3);
  EXPECT_EQ(source->label(0), 3);
  EXPECT_EQ(source->label(1), 9);
  EXPECT_EQ(source->label(2), 0);
  EXPECT_EQ(source->decode(0).channels, 3);
  EXPECT_EQ(source->decode(2).channels, 1);
  EXPECT_EQ(error_of([&] { source->decode(1); }, folder.path()),
            "[images] 'DIR/a.pack', image 1: expected a PNG or JPEG file, got other data");
}

TEST(ImageSource, a_pack_that_is_cut_short_is_an_error) {
  const ScratchFolder folder;
  const std::string records = pack_record(3, fixture("rgb.png")) + pack_record(1, "1234");
  for (const size_t n_lost : {1, 4, 5, 8}) {
    const std::string path = folder.put("a.pack", records.substr(0, records.size() - n_lost));
    EXPECT_EQ(error_of([&] { opened(path); }, folder.path()),
              fmt::format("[images] 'DIR/a.pack': expected [label][n][n bytes] as record 1, got {} "
                          "bytes",
                          9 - n_lost));
  }
  EXPECT_EQ(error_of([&] { opened(folder.put("b.pack", "")); }, folder.path()),
            "[images] 'DIR/b.pack': expected pictures, got an empty file");
}

TEST(ImageSource, records_of_cifar_10_are_planes) {
  const ScratchFolder folder;
  std::string bytes;
  for (int image = 0; image < 2; ++image) {
    bytes += static_cast<char>(7 + image);
    for (int i = 0; i < 3072; ++i) bytes += static_cast<char>(i / 1024 * 50 + i % 32 + image);
  }
  const auto source = opened(folder.put("a.bin", bytes));
  ASSERT_EQ(source->n_images(), 2);
  EXPECT_EQ(source->label(1), 8);
  const Image image = source->decode(1);
  EXPECT_EQ(image.row(0, 0)[0], 1);
  EXPECT_EQ(image.row(1, 31)[5], 56);
  EXPECT_EQ(image.row(2, 4)[31], 132);
  EXPECT_EQ(error_of([&] { opened(folder.put("b.bin", bytes + "1")); }, folder.path()),
            "[images] 'DIR/b.bin': expected records of 3073 bytes (CIFAR-10), got 6147 bytes");
}

TEST(ImageSource, idx_files_come_with_their_labels) {
  const ScratchFolder folder;
  folder.put("t-labels-idx1-ubyte", idx({2}, "\4\5"));
  const auto gray = opened(folder.put("t-images-idx3-ubyte", idx({2, 2, 3}, "abcdefghijkl")));
  ASSERT_EQ(gray->n_images(), 2);
  EXPECT_EQ(gray->label(1), 5);
  EXPECT_EQ(gray->decode(1).channels, 1);
  EXPECT_EQ(gray->decode(1).row(0, 1)[2], 'l');
  const auto color = opened(folder.put("t-images-idx4-ubyte", idx({2, 1, 2, 3}, "abcdefghijkl")));
  EXPECT_EQ(color->decode(0).row(0, 0)[1], 'd');
  EXPECT_EQ(color->decode(0).row(2, 0)[0], 'c');
  EXPECT_EQ(color->name_of(1), fmt::format("'{}', image 1", folder / "t-images-idx4-ubyte"));
}

TEST(ImageSource, idx_files_that_are_wrong_say_so) {
  const ScratchFolder folder;
  folder.put("labels-idx1", idx({2}, "\4\5"));
  const struct {
    std::string bytes, error;
  } cases[] = {
      {"PNG", "expected an IDX file, got other data"},
      {idx({2, 2, 3}, "abcdefghijkl", 13), "expected IDX of bytes (type 8), got type 13"},
      {idx({}, ""), "expected IDX of 1 to 4 dimensions, got 0"},
      {idx({2, 2, 3}, "abcdefghijkl").substr(0, 11),
       "expected the header of an IDX file, got its "
       "end"},
      {idx({2, 2, 3}, "abcdefghijk"), "expected 2 x 2 x 3 bytes as its header tells, got 11"},
      {idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "abc"),
       "expected 4294967295 x 4294967295 x 4294967295 x 4294967295 bytes as its header tells, got "
       "3"},
      {idx({2, 6}, "abcdefghijkl"), "expected pictures [N, H, W] or [N, H, W, 3], got [2, 6]"},
      {idx({0, 2, 3}, ""), "expected pictures [N, H, W] or [N, H, W, 3], got [0, 2, 3]"},
  };
  for (const auto& [bytes, error] : cases) {
    const std::string path = folder.put("images-idx3", bytes);
    EXPECT_EQ(error_of([&] { opened(path); }, folder.path()),
              "[images] 'DIR/images-idx3': " + error);
  }
  EXPECT_EQ(error_of(
                [&] {
                  opened(folder.put("images-idx3", idx({3, 2, 2}, "abcdefghijkl")));
                },
                folder.path()),
            "[images] 'DIR/labels-idx1': expected 3 labels, got [2]");
  EXPECT_EQ(error_of([&] { opened(folder.put("other", "abc")); }, folder.path()),
            "[images] 'DIR/other': expected a folder, .pack, .bin, or IDX with images-idx3 in its "
            "name");
}

TEST(ImageSource, a_folder_has_a_class_a_folder_and_leaves_out_what_is_no_picture) {
  const ScratchFolder folder;
  folder.put("set/cat/1.png", fixture("rgb.png"));
  folder.put("set/cat/deep/2.JPG", fixture("gray.jpg"));
  folder.put("set/cat/broken.png", "no picture");
  folder.put("set/cat/empty.png", "");
  folder.put("set/dog/cut.jpeg", fixture("full_color.jpeg").substr(0, 900));
  folder.put("set/dog/more.png", fixture("gray.png") + "bytes behind it");
  folder.put("set/.hidden/3.png", fixture("rgb.png"));
  std::vector<std::string> warnings;
  const auto source =
      opened(folder / "set", Log([&](LogLevel, const std::string& line) {
               warnings.push_back(line);
               warnings.back().erase(warnings.back().find(folder.path()), folder.path().size() + 1);
             }));
  EXPECT_THAT(source->classes(), testing::ElementsAre("cat", "dog"));
  std::map<std::string, int32_t> labels;
  for (int64_t i = 0; i < source->n_images(); ++i) {
    EXPECT_GT(source->decode(i).width, 0);
    labels[source->name_of(i)] = source->label(i);
  }
  const auto name = [&](const std::string& file) { return fmt::format("'{}'", folder / file); };
  EXPECT_THAT(labels, testing::ElementsAre(testing::Pair(name("set/cat/1.png"), 0),
                                           testing::Pair(name("set/cat/deep/2.JPG"), 0),
                                           testing::Pair(name("set/dog/more.png"), 1)));
  EXPECT_THAT(warnings, testing::ElementsAre(
                            "[images] 'set/cat/broken.png': expected a PNG or JPEG file, got other "
                            "data; it is left out",
                            "[images] 'set/cat/empty.png': expected a PNG or JPEG file, got other "
                            "data; it is left out",
                            "[images] 'set/dog/cut.jpeg': expected a JPEG file, got damaged data: "
                            "Premature end of input file; it is left out"));
}

// The warnings of a folder, less the path of what it lies in.
std::vector<std::string> warnings_of(const ScratchFolder& folder, const std::string& name) {
  std::vector<std::string> lines;
  opened(folder / name, Log([&](LogLevel, const std::string& line) {
           std::string text = line;
           for (size_t at = 0; (at = text.find(folder.path(), at)) != text.npos;)
             text.replace(at, folder.path().size(), "DIR");
           lines.push_back(text);
         }));
  return lines;
}

TEST(ImageSource, files_of_a_folder_that_are_not_read_are_counted_by_their_endings) {
  const ScratchFolder folder;
  for (const char* name : {"cat/1.png", "dog/2.WEBP", "dog/3.webp", "cat/4.bmp", "cat/5.bmp",
                           "cat/README", "eel/6.tif", "7.png"}) {
    folder.put(std::string("set/") + name, fixture("rgb.png"));
  }
  std::filesystem::create_symlink(folder / "set/cat/1.png", folder / "set/cat/8.png");
  std::filesystem::create_directory_symlink(folder / "set/cat", folder / "set/fox");
  EXPECT_THAT(
      warnings_of(folder, "set"),
      testing::ElementsAre(
          "[images] 'DIR/set/7.png' is in no class's folder; it is left out",
          "[images] 'DIR/set': class 'dog' has no picture",
          "[images] 'DIR/set': class 'eel' has no picture",
          "[images] 'DIR/set': 2 symbolic links are left out",
          "[images] 'DIR/set': files that do not end in .png, .jpg or .jpeg are left out: .WEBP "
          "(1), .bmp (2), .tif (1), .webp (1), no ending (1); the first is 'DIR/set/cat/4.bmp'"));
}

TEST(ImageSource, of_many_damaged_pictures_a_few_are_named_and_all_are_counted) {
  const ScratchFolder folder;
  folder.put("set/cat/a.png", fixture("rgb.png"));
  for (int i = 0; i < 5; ++i) folder.put(fmt::format("set/cat/{}.png", i), "no picture");
  EXPECT_EQ(warnings_of(folder, "set").size(), 5u);
  folder.put("set/cat/5.png", "no picture");
  const auto lines = warnings_of(folder, "set");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines.back(), "[images] 'DIR/set': 6 pictures are left out in all");
}

TEST(ImageSource, classes_have_the_numbers_that_the_caller_gives_them) {
  const ScratchFolder folder;
  for (const char* name : {"ant", "zebra"})
    folder.put(fmt::format("set/{}/1.png", name), fixture("one_bit.png"));
  const auto with = [&](std::vector<std::string> classes) {
    return open_images(posix_files(), folder / "set", {.classes = std::move(classes)});
  };
  const auto source = with({"zebra", "0", "ant"});
  EXPECT_THAT(source->classes(), testing::ElementsAre("zebra", "0", "ant"));
  for (int64_t i = 0; i < 2; ++i) {
    const bool is_ant = source->name_of(i).find("ant/1") != std::string::npos;
    EXPECT_EQ(source->label(i), is_ant ? 2 : 0);
  }
  EXPECT_EQ(error_of(
                [&] {
                  with({"zebra", "cat"});
                },
                folder.path()),
            "[images] 'DIR/set': expected classes of zebra, cat, got ant");
  EXPECT_EQ(error_of(
                [&] {
                  with({"zebra", "ant", "zebra"});
                },
                folder.path()),
            "[images] 'DIR/set': expected one class 'zebra', got 2 of that name");
}

TEST(ImageSource, pictures_are_files_of_so_many_bytes_at_most) {
  const ScratchFolder folder;
  const std::string picture = fixture("rgb.png");
  folder.put("set/cat/1.png", picture);
  const auto first = [&](uint64_t most) {
    const auto source =
        open_images(posix_files(), folder / "set", {.limits = {.max_file_bytes = most}});
    return error_of([&] { source->decode(0); }, folder.path());
  };
  EXPECT_EQ(first(picture.size()), "no error");
  EXPECT_EQ(first(picture.size() - 1),
            "[images] 'DIR/set/cat/1.png': expected at most 478 bytes, got 479");
}

TEST(ImageSource, each_part_of_a_folder_holds_all_classes) {
  const ScratchFolder folder;
  for (int i = 0; i < 40; ++i) {
    const std::string name = fmt::format("set/{}/{}.png", i < 20 ? "cat" : "dog", i);
    folder.put(name, fixture("one_bit.png"));
  }
  const auto source = opened(folder / "set");
  int n_dogs = 0;
  for (int64_t i = 20; i < 40; ++i) n_dogs += source->label(i);
  EXPECT_NEAR(n_dogs, 10, 6);
}

TEST(ImageSource, a_folder_without_classes_is_an_error) {
  const ScratchFolder folder;
  folder.put("set/1.png", fixture("rgb.png"));
  EXPECT_EQ(error_of([&] { opened(folder / "set"); }, folder.path()),
            "[images] 'DIR/set': expected a folder of pictures for each class, got none");
  EXPECT_EQ(error_of([&] { opened(folder / "none"); }, folder.path()),
            "[images] 'DIR/none': expected a file or a folder, got neither");
}

TEST(ImageSource, identity_changes_with_labels_pixels_and_order) {
  const ScratchFolder folder;
  const std::string a = pack_record(1, fixture("rgb.png")), b = pack_record(2, fixture("gray.png"));
  const std::string c = pack_record(3, fixture("rgb.png"));
  const std::string cases[] = {a + b, b + a, c + b, a};
  std::set<uint64_t> identities;
  for (const std::string& records : cases) {
    identities.insert(opened(folder.put("a.pack", records))->identity());
  }
  EXPECT_EQ(identities.size(), std::size(cases));
  EXPECT_EQ(opened(folder.put("b.pack", a + b))->identity(),
            opened(folder.put("a.pack", a + b))->identity());
}

TEST(ImageSource, joined_sources_follow_each_other) {
  const ScratchFolder folder;
  const auto first = opened(folder.put(
      "a.pack", pack_record(1, fixture("rgb.png")) + pack_record(2, fixture("gray.png"))));
  const auto second = opened(folder.put("b.pack", pack_record(5, fixture("gray.jpg"))));
  const auto both = join_images({first, second});
  ASSERT_EQ(both->n_images(), 3);
  EXPECT_EQ(both->label(1), 2);
  EXPECT_EQ(both->label(2), 5);
  EXPECT_EQ(both->decode(2).width, 37);
  EXPECT_NE(both->identity(), join_images({second, first})->identity());
  EXPECT_EQ(join_images({first})->identity(), first->identity());
  folder.put("set/cat/1.png", fixture("rgb.png"));
  EXPECT_EQ(error_of(
                [&] {
                  join_images({first, opened(folder / "set")});
                },
                folder.path()),
            "[images] expected folders of classes alone, or labels by number alone, got "
            "'DIR/set/cat/1.png' beside 'DIR/a.pack', image 0");
}

TEST(ImageSource, reads_mnist_and_cifar_10) {
  const std::string folder = OCTET_TEST_DATA "/data/images/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no images in " << folder;
  const struct {
    std::string path;
    int64_t n_images, channels, extent;
  } cases[] = {{"mnist/t10k-images-idx3-ubyte.gz", 10000, 1, 28},
               {"cifar10/train_jpeg.pack", 50000, 3, 32}};
  for (const auto& [path, n_images, channels, extent] : cases) {
    SCOPED_TRACE(path);
    const auto source = opened(folder + path);
    ASSERT_EQ(source->n_images(), n_images);
    std::vector<int64_t> counts(10);
    for (int64_t i = 0; i < n_images; ++i) ++counts.at(static_cast<size_t>(source->label(i)));
    EXPECT_THAT(counts, testing::Each(testing::Ge(n_images / 10 - n_images / 80)));
    for (const int64_t i : {int64_t{0}, n_images / 2, n_images - 1}) {
      const Image image = source->decode(i);
      EXPECT_EQ(image.channels, channels);
      EXPECT_EQ(image.height, extent);
      EXPECT_EQ(image.width, extent);
    }
  }
}

}  // namespace
}  // namespace octet::data_image_source_test
